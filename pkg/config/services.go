package config

import (
	"errors"
	"time"
)

// Grab is the configuration of the grab service.
type Grab struct {
	HTTP     HTTP       `embed:"" group:"HTTP" set:"listen=127.0.0.1:8081"`
	Redis    Redis      `embed:"" group:"Redis"`
	NATS     NATS       `embed:"" group:"NATS"`
	Identity Identity   `embed:"" group:"Users"`
	Log      Log        `embed:"" group:"Log"`
	Front    GrabFront  `embed:"" group:"Front"`
	Grab     GrabTuning `embed:"" group:"Grabs"`
	Quotas   Quotas     `embed:"" group:"Quotas"`
}

// Order is the configuration of the order service.
type Order struct {
	HTTP     HTTP        `embed:"" group:"HTTP" set:"listen=127.0.0.1:8082"`
	Redis    Redis       `embed:"" group:"Redis"`
	NATS     NATS        `embed:"" group:"NATS"`
	MySQL    MySQL       `embed:"" group:"MySQL"`
	Identity Identity    `embed:"" group:"Users"`
	Log      Log         `embed:"" group:"Log"`
	Gateways Gateways    `embed:"" group:"Quotas"`
	Order    OrderTuning `embed:"" group:"Orders"`
	Events   Events      `embed:"" group:"Events"`
	EventLog EventTuning `embed:"" group:"Events"`
	Webhooks Webhooks    `embed:"" group:"Webhooks"`
}

// Reconciler is the configuration of the reconciler.
type Reconciler struct {
	HTTP      HTTP            `embed:"" group:"HTTP" set:"listen=127.0.0.1:8083"`
	Redis     Redis           `embed:"" group:"Redis"`
	NATS      NATS            `embed:"" group:"NATS"`
	MySQL     MySQL           `embed:"" group:"MySQL"`
	Log       Log             `embed:"" group:"Log"`
	Reconcile ReconcileTuning `embed:"" group:"Reconcile"`
}

// Admin is the configuration of the admin service.
type Admin struct {
	HTTP      HTTP      `embed:"" group:"HTTP" set:"listen=127.0.0.1:8084"`
	Redis     Redis     `embed:"" group:"Redis"`
	NATS      NATS      `embed:"" group:"NATS"`
	MySQL     MySQL     `embed:"" group:"MySQL"`
	AdminKey  AdminKey  `embed:"" group:"Admin"`
	AdminKeys AdminKeys `embed:"" group:"Admin"`
	Log       Log       `embed:"" group:"Log"`
	Events    Events    `embed:"" group:"Events"`
}

// Dev is the configuration of doorbuster dev: every role in one process on one
// address. The backends that are not given run inside the process.
type Dev struct {
	HTTP      HTTP            `embed:"" group:"HTTP" set:"listen=127.0.0.1:8080"`
	Data      string          `name:"data" placeholder:"DIR" help:"Folder for what the embedded backends keep. Empty takes a temporary one, removed at the end."`
	AdminKey  string          `name:"admin-key" secret:"" placeholder:"KEY" help:"Key that callers of the admin API send as a bearer token. Empty makes one up and prints it."`
	AdminKeys AdminKeys       `embed:"" group:"Admin"`
	Redis     Redis           `embed:"" group:"Redis" set:"redis=" set:"redishelp= Empty runs an embedded one."`
	NATS      NATS            `embed:"" group:"NATS" set:"nats=" set:"natshelp= Empty runs an embedded one."`
	MySQL     MySQL           `embed:"" group:"MySQL" set:"mysqlhelp= Empty runs an embedded SQLite."`
	Log       Log             `embed:"" group:"Log" set:"logformat=text"`
	Front     GrabFront       `embed:"" group:"Front"`
	Grab      GrabTuning      `embed:"" group:"Grabs"`
	Quotas    Quotas          `embed:"" group:"Quotas"`
	Order     OrderTuning     `embed:"" group:"Orders"`
	Reconcile ReconcileTuning `embed:"" group:"Reconcile"`
	Events    Events          `embed:"" group:"Events"`
	EventLog  EventTuning     `embed:"" group:"Events"`
	Webhooks  Webhooks        `embed:"" group:"Webhooks"`
}

// Validate refuses an order service without a ledger.
func (o *Order) Validate() error { return o.MySQL.required() }

// Validate refuses a reconciler without a ledger.
func (r *Reconciler) Validate() error { return r.MySQL.required() }

// Validate refuses an admin service without a ledger.
func (a *Admin) Validate() error { return a.MySQL.required() }

// GrabTuning bounds the path of a grab.
type GrabTuning struct {
	BatchMax       int           `name:"batch-max" default:"192" min:"1" max:"1000" help:"Grabs in one call of the selling script, and so grants in one stream message."`
	QueueMax       int           `name:"queue-max" default:"16384" min:"1" max:"1000000" help:"Grabs of one sale that wait for the selling script. Beyond it the answer is 503."`
	InFlightMax    int           `name:"in-flight-max" default:"20000" min:"1" max:"1000000" help:"Grab requests in one process at a time. Beyond it the answer is 503."`
	UnackedBatches int           `name:"unacked-batches" default:"3" min:"1" max:"64" help:"Batches of one sale that were published and are not acknowledged yet."`
	SoldOutTTL     time.Duration `name:"sold-out-ttl" default:"1s" min:"0s" max:"1m" help:"Time for which a sold out answer is repeated from memory. 0s asks Redis each time."`
	LeaseTTL       time.Duration `name:"outbox-lease-ttl" default:"5s" min:"1s" max:"1m" help:"Life of a grab process's sign of life in Redis. After it others publish what the process left in its outbox."`
	UserRate       float64       `name:"user-rate" default:"0" min:"0" max:"1000000" help:"Grabs per second that one user may send to one process. 0 is no limit."`
	UserBurst      int           `name:"user-burst" default:"10" min:"1" max:"1000000" help:"Grabs that one user may send at once before user-rate holds."`
	IPRate         float64       `name:"ip-rate" default:"0" min:"0" max:"1000000" help:"Grabs per second that one client address may send to one process. 0 is no limit."`
	BatcherIdle    time.Duration `name:"batcher-idle" default:"1m" min:"1s" max:"24h" help:"Time after which a sale or quota that nobody asks for costs the process no memory for its queue."`
	IPBurst        int           `name:"ip-burst" default:"100" min:"1" max:"1000000" help:"Grabs that one client address may send at once before ip-rate holds."`
}

// OrderTuning bounds the way of a grant into the ledger.
type OrderTuning struct {
	Workers            int           `name:"workers" default:"2" min:"1" max:"64" help:"Loops that fetch grants and write them."`
	FetchMax           int           `name:"fetch-max" default:"100" min:"1" max:"10000" help:"Most stream messages in one fetch. It asks for as many as make about one transaction."`
	GrantsPerTx        int           `name:"grants-per-tx" default:"1000" min:"1" max:"10000" help:"Grants in one transaction. One message is never split, so it may be exceeded by batch-max."`
	AckWait            time.Duration `name:"ack-wait" default:"30s" min:"1s" max:"10m" help:"Time to write a message before the stream delivers it again."`
	MaxDeliverAttempts int           `name:"max-deliver-attempts" default:"8" min:"1" max:"1000" help:"Deliveries of a message before its grants become dead letters."`
	RetryBase          time.Duration `name:"retry-base" default:"500ms" min:"10ms" max:"1m" help:"Delay after the first failed delivery; it doubles with each one."`
	RetryMax           time.Duration `name:"retry-max" default:"1m" min:"10ms" max:"1h" help:"Longest delay between two deliveries."`
	WaitMax            time.Duration `name:"wait-max" default:"30s" min:"0s" max:"50s" help:"Longest wait that a client may ask for with ?wait=."`
	WaitersMax         int           `name:"waiters-max" default:"1000" min:"1" max:"100000" help:"Requests that wait for an order or watch one at a time. Beyond it the answer is 503."`
	WatchMax           time.Duration `name:"watch-max" default:"10m" min:"1s" max:"1h" help:"Longest time that a client may watch an order before it has to ask again."`
	ExpiryInterval     time.Duration `name:"expiry-interval" default:"1s" min:"10ms" max:"1h" help:"Pause between two looks for orders that were not paid in time."`
	ExpiryBatch        int           `name:"expiry-batch" default:"500" min:"1" max:"1000" help:"Unpaid orders that one transaction ends."`
}

// Validate refuses delays that contradict each other.
func (o *OrderTuning) Validate() error {
	if o.RetryMax < o.RetryBase {
		return errors.New("--retry-max: must be at least --retry-base")
	}
	return nil
}

// ReconcileTuning bounds the work of the reconciler.
type ReconcileTuning struct {
	AuditInterval time.Duration `name:"audit-interval" default:"30s" min:"1s" max:"24h" help:"Time between two comparisons of Redis with the ledger."`
	RelayInterval time.Duration `name:"relay-interval" default:"1s" min:"50ms" max:"1h" help:"Time between two looks for orphaned outboxes and for returns not given back to Redis."`
	LeaseTTL      time.Duration `name:"reconcile-lease-ttl" default:"15s" min:"1s" max:"10m" help:"Life of the lease that keeps two reconcilers off one sale. It is renewed while the work goes on."`
	Chunk         int           `name:"chunk" default:"1000" min:"1" max:"100000" help:"Elements that one Redis command or one database read carries."`
}
