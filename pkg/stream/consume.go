package stream

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/doorbuster/doorbuster/pkg/backoff"
	"github.com/nats-io/nats.go/jetstream"
)

// Handler does the work of messages and says what becomes of each: one Result per
// message, in their order. A missing Result counts as a Retry. It must be idempotent:
// any message may come again. Its context ends DrainLimit after Run's has.
type Handler func(ctx context.Context, messages []Message) []Result

// ConsumerConfig bounds a Consumer. A zero field takes its default.
type ConsumerConfig struct {
	// Loops is how many fetch, and how many Handler calls run, at a time: 1 to 64. Default 2.
	Loops int
	// FetchMax is the most messages of one fetch, and so of one Handler call, 1 to
	// 10,000. Default 100. A Consumer holds at most Loops times FetchMax messages of the
	// server's max_payload (1 MiB unless configured) each.
	FetchMax int
	// FetchSize is asked before each fetch how many messages it is to bring; the answer is
	// brought to 1 to FetchMax. Nil asks for FetchMax. Messages that one loop has
	// fetched are out of reach of the others, and of other processes until AckWait is over
	// when this one dies.
	FetchSize func() int
	// FetchWait is how long one fetch waits for messages, 10ms to 1m. Default 1s. They are
	// handed over as they come; this only bounds how long Run takes to notice its end.
	FetchWait time.Duration
	// RetryDelay is the pause of a Retry that names none, 1ms to 1h. Default 1s.
	RetryDelay time.Duration
	// DrainLimit is how long the Handler calls in hand may go on after Run's
	// context has ended, 10ms to 10m. Default 10s.
	DrainLimit time.Duration
}

func (c ConsumerConfig) withDefaults() ConsumerConfig {
	setDefault(&c.Loops, 2)
	setDefault(&c.FetchMax, 100)
	setDefault(&c.FetchWait, time.Second)
	setDefault(&c.RetryDelay, time.Second)
	setDefault(&c.DrainLimit, 10*time.Second)
	if c.FetchSize == nil {
		most := c.FetchMax
		c.FetchSize = func() int { return most }
	}
	return c
}

func (c ConsumerConfig) validate() error {
	switch {
	case c.Loops < 1 || c.Loops > 64:
		return errors.New("consumer: Loops must be 1 to 64")
	case c.FetchMax < 1 || c.FetchMax > 10_000:
		return errors.New("consumer: FetchMax must be 1 to 10000")
	case c.FetchWait < 10*time.Millisecond || c.FetchWait > time.Minute:
		return errors.New("consumer: FetchWait must be 10ms to 1m")
	case c.RetryDelay < time.Millisecond || c.RetryDelay > time.Hour:
		return errors.New("consumer: RetryDelay must be 1ms to 1h")
	case c.DrainLimit < 10*time.Millisecond || c.DrainLimit > 10*time.Minute:
		return errors.New("consumer: DrainLimit must be 10ms to 10m")
	default:
		return nil
	}
}

// Consumer hands the messages of GRANTS to a Handler and settles them. Any number
// of Consumers, in any number of processes, share the messages.
type Consumer struct {
	stream *Stream
	cfg    ConsumerConfig
	handle Handler
}

// NewConsumer returns a Consumer; Run starts it.
func (s *Stream) NewConsumer(cfg ConsumerConfig, handle Handler) (*Consumer, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	return &Consumer{stream: s, cfg: cfg, handle: handle}, nil
}

// Run consumes until ctx ends. It outlives NATS: while it is away it tries again
// with growing delays, and a deleted consumer is made anew (from the stream's
// beginning). When ctx has ended, the Handler calls in hand go on for up to
// DrainLimit, their messages are settled, and what was only fetched is handed back for
// others. When Run returns nothing of it is left running.
func (c *Consumer) Run(ctx context.Context) {
	work, stop := outlive(ctx, c.cfg.DrainLimit)
	defer stop()
	var loops sync.WaitGroup
	for range c.cfg.Loops {
		loops.Go(func() { c.loop(ctx, work) })
	}
	loops.Wait()
}

// outlive returns a context that ends limit after ctx does.
func outlive(ctx context.Context, limit time.Duration) (context.Context, context.CancelFunc) {
	work, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var timer *time.Timer
	var mu sync.Mutex
	unhook := context.AfterFunc(ctx, func() {
		mu.Lock()
		defer mu.Unlock()
		timer = time.AfterFunc(limit, cancel)
	})
	return work, func() {
		unhook()
		mu.Lock()
		defer mu.Unlock()
		if timer != nil {
			timer.Stop()
		}
		cancel()
	}
}

// loop fetches until ctx ends, and looks the consumer up anew after every failure.
func (c *Consumer) loop(ctx, work context.Context) {
	failures := 0
	for ctx.Err() == nil {
		err := c.consume(ctx, work, func() { failures = 0 })
		if err == nil || ctx.Err() != nil {
			continue
		}
		failures++
		c.stream.cfg.Logger.Warn("consumer interrupted", "consumer", OrdersConsumer, "failures", failures, "error", err)
		backoff.Pause(ctx, backoff.Delay(failures, retryBase, retryMax))
	}
}

// consume looks up the consumer and fetches from it until ctx ends or something
// fails. It calls alive when a fetch went well.
func (c *Consumer) consume(ctx, work context.Context, alive func()) error {
	source, err := c.bind(ctx)
	if err != nil {
		return err
	}
	for ctx.Err() == nil {
		if !c.stream.nc.IsConnected() {
			// Not only cheaper than a fetch that fails: nats.go 1.55.0 leaks the
			// subscription of a fetch that could not be sent.
			return ErrNotConnected
		}
		if err := c.fetch(ctx, work, source); err != nil {
			return err
		}
		alive()
	}
	return nil
}

// source is the consumer and the stream it was found on.
type source struct {
	consumer jetstream.Consumer
	streamID int64
}

// bind finds the consumer, or makes it.
func (c *Consumer) bind(ctx context.Context) (source, error) {
	streamID, err := c.stream.StreamID(ctx)
	if err != nil {
		return source{}, err
	}
	consumer, err := c.stream.ensureOrdersConsumer(ctx)
	if err != nil {
		return source{}, err
	}
	return source{consumer: consumer, streamID: streamID}, nil
}

// fetch asks for messages once and hands them over as they come: first what is
// there, then what came while the Handler was busy.
//
// It must not limit the bytes (FetchMaxBytes, FetchBytes). With replicas the server
// (2.15.2) ends such a fetch with a status that overtakes the messages, which wait for the
// replicas first; the client then drops them, and they come again only after AckWait.
func (c *Consumer) fetch(ctx, work context.Context, from source) error {
	size := min(max(c.cfg.FetchSize(), 1), c.cfg.FetchMax)
	fetched, err := from.consumer.Fetch(size, jetstream.FetchMaxWait(c.cfg.FetchWait))
	if err != nil {
		return fmt.Errorf("fetch: %w", err)
	}
	var failure error
	for {
		deliveries := waiting(fetched.Messages())
		if len(deliveries) == 0 {
			break
		}
		// Even when ctx has ended, the fetch is read to its end: a delivery that
		// was dropped here would come again only after AckWait.
		if ctx.Err() != nil || failure != nil {
			c.handBack(deliveries)
			continue
		}
		failure = c.work(work, from, deliveries)
	}
	if failure != nil {
		return failure
	}
	if err := fetched.Error(); err != nil {
		return fmt.Errorf("fetch: %w", err)
	}
	return nil
}

// waiting waits for a delivery and returns it with all that are there already;
// none when the fetch is over. A fetch bounds how many there can be.
func waiting(fetched <-chan jetstream.Msg) []jetstream.Msg {
	first, ok := <-fetched
	if !ok {
		return nil
	}
	deliveries := []jetstream.Msg{first}
	for {
		select {
		case next, ok := <-fetched:
			if !ok {
				return deliveries
			}
			deliveries = append(deliveries, next)
		default:
			return deliveries
		}
	}
}

// work runs the Handler on deliveries and settles them.
func (c *Consumer) work(ctx context.Context, from source, deliveries []jetstream.Msg) error {
	messages := make([]Message, 0, len(deliveries))
	for _, delivery := range deliveries {
		m, err := newMessage(from.streamID, delivery)
		if err != nil {
			return err
		}
		messages = append(messages, m)
	}
	// A fetch names the stream only. If it was deleted and made again since bind,
	// these sequences belong to another stream than streamID says, and recording
	// them as progress would lose grants. Asked after they have come, it answers for them.
	streamID, err := c.stream.StreamID(ctx)
	if err == nil && streamID != from.streamID {
		err = fmt.Errorf("stream %s was made anew", GrantsStream)
	}
	if err != nil {
		c.handBack(deliveries)
		return err
	}
	results := c.handle(ctx, messages)
	var failures []error
	for i := range messages {
		var result Result
		if i < len(results) {
			result = results[i]
		}
		if err := settle(&messages[i], result, c.cfg.RetryDelay); err != nil {
			failures = append(failures, err)
		}
	}
	return settleError(failures)
}

// settle carries out a result. A lost acknowledgement is no harm: the message comes
// again, and its work is idempotent. So there is no waiting for the server to
// confirm it (DoubleAck), which would cost a round trip per message.
func settle(m *Message, result Result, retryDelay time.Duration) error {
	switch result.kind {
	case kindAck:
		return m.delivery.Ack()
	default:
		after := result.after
		if after <= 0 {
			after = retryDelay
		}
		return m.delivery.NakWithDelay(after)
	}
}

// settleError sums up what could not be settled in one line.
func settleError(failures []error) error {
	if len(failures) == 0 {
		return nil
	}
	return fmt.Errorf("settle %d messages, the first: %w", len(failures), failures[0])
}

// handBackDelay keeps a message that was handed back from coming straight back to
// a process that stops.
const handBackDelay = 100 * time.Millisecond

// handBack returns deliveries that nobody worked on. What can't be returned comes
// again after AckWait.
func (c *Consumer) handBack(deliveries []jetstream.Msg) {
	for _, delivery := range deliveries {
		_ = delivery.NakWithDelay(handBackDelay)
	}
}
