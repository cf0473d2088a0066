package reconcile

import (
	"time"

	"github.com/doorbuster/doorbuster/pkg/sale"
)

// Result is how a run ended.
type Result string

// The results of a run.
const (
	ResultRestored    Result = "restored"     // Redis holds a state that this run rebuilt
	ResultHealthy     Result = "healthy"      // it was loaded and current; nothing was done
	ResultNotLoadable Result = "not_loadable" // a draft, or over for longer than the retention
	ResultHeld        Result = "held"         // another reconciler was at it for all the time we waited
	ResultFailed      Result = "failed"
)

// Results lists every result, for metrics.
var Results = []Result{ResultRestored, ResultHealthy, ResultNotLoadable, ResultHeld, ResultFailed}

// Reasons for a run, besides those of stock.NotLoaded. An operator may give any
// other text.
const (
	// ReasonForced rebuilds a sale that looks healthy: an operator asked for it.
	ReasonForced = "forced"
	// ReasonDrift rebuilds a sale whose counts disagree with the ledger.
	ReasonDrift = "drift"
	// ReasonApprove is the first loading of a sale, ReasonOperator an operator's
	// question whether it is healthy.
	ReasonApprove  = "approve"
	ReasonOperator = "operator"
	// ReasonStock changes the stock of an item from or to unlimited.
	ReasonStock = "stock"
	// ReasonAudit is an audit that found the sale not loaded.
	ReasonAudit = "audit"
)

// WhyFenceMoved is found when a later generation began than the one in Redis.
const WhyFenceMoved = "fence_moved"

// Step is a part of a run.
type Step string

// The steps of a run, in order.
const (
	StepLease     Step = "lease"
	StepProbe     Step = "probe"
	StepClose     Step = "close"
	StepPublish   Step = "publish"
	StepFence     Step = "fence"
	StepRecord    Step = "record_generation"
	StepMint      Step = "mint"
	StepTail      Step = "read_stream"
	StepLedger    Step = "read_ledger"
	StepFold      Step = "fold"
	StepWrite     Step = "write"
	StepCommit    Step = "commit"
	StepGivebacks Step = "apply_givebacks"
	StepSignal    Step = "signal"
)

// Steps lists every step, for metrics.
var Steps = []Step{
	StepLease, StepProbe, StepClose, StepPublish, StepFence, StepRecord, StepMint, StepTail, StepLedger, StepFold, StepWrite,
	StepCommit, StepGivebacks, StepSignal,
}

// Report says what a run found, what differed, what it did and how long it took.
type Report struct {
	SaleID    string        `json:"sale_id"`
	Reason    string        `json:"reason"`
	Result    Result        `json:"result"`
	Error     string        `json:"error,omitempty"`
	StartedAt time.Time     `json:"started_at"`
	Duration  sale.Duration `json:"duration"`
	Attempts  int           `json:"attempts"` // how often the rebuilding was begun

	Found Found `json:"found"`
	// The rest is there once a state was rebuilt; it is of the last attempt.
	Generation  int64        `json:"generation"` // after the run
	Fence       uint64       `json:"fence_seq"`  // stream sequence of the fence that began it
	Era         string       `json:"era,omitempty"`
	Read        Read         `json:"read"`
	Restored    Restored     `json:"restored"`
	Differences *Differences `json:"differences,omitempty"`
	Violations  Violations   `json:"violations"`

	Steps []StepTime `json:"steps"`
}

// Found is what Redis held before the run.
type Found struct {
	Loaded     bool   `json:"loaded"`
	Why        string `json:"why_not_loaded,omitempty"`
	Generation int64  `json:"generation"`
	// LastFence is the stream's last fence of the sale; its generation.
	LastGeneration int64  `json:"last_generation"`
	LastFence      uint64 `json:"last_fence_seq"`
}

// Read is what the state was rebuilt from.
type Read struct {
	Outboxes Relayed `json:"outboxes"`
	Progress uint64  `json:"progress"` // the ledger has the stream up to here
	// StreamRegressed: the stream does not have the message that the ledger wrote
	// last, so all of it was read. An older copy of it was restored, or that
	// message was purged.
	StreamRegressed bool `json:"stream_regressed,omitempty"`

	TailMessages int64 `json:"tail_messages"`
	Orders       int64 `json:"orders"`
	Settled      int64 `json:"settled_grants"` // adjustments and cancelled dead letters
	DeadLetters  int64 `json:"open_dead_letters"`
	Givebacks    int64 `json:"givebacks"`
}

// Restored is what the run put into Redis.
type Restored struct {
	Grants        int64            `json:"grants"`
	FromStream    int64            `json:"grants_without_order"`
	Buyers        int64            `json:"buyers"`
	Remaining     map[string]int64 `json:"remaining,omitempty"`
	LateGivebacks int64            `json:"late_givebacks"` // decided while the run was reading
}

// maxSamples bounds the ids of one kind in a report.
const maxSamples = 10

// Differences compares what Redis held with what the run put there. Counts are
// of everything, samples of the first part of the old state only.
type Differences struct {
	Remaining []CountDifference `json:"remaining,omitempty"` // per SKU; -2 stands for a missing key
	Buyers    *CountDifference  `json:"buyers,omitempty"`
	Grants    *CountDifference  `json:"grants,omitempty"`
	Givebacks *CountDifference  `json:"givebacks,omitempty"`
	// Sampled is how many old grants were compared one by one; VoidedOrders are
	// those of them that nothing durable knows.
	Sampled      int      `json:"sampled_grants"`
	VoidedOrders []string `json:"voided_orders,omitempty"`
}

// CountDifference is one number that was not what it should be.
type CountDifference struct {
	SKU    string `json:"sku,omitempty"`
	Before int64  `json:"before"`
	After  int64  `json:"after"`
}

// missingKey stands for the number in a key that does not exist.
const missingKey = -2

// StepTime is how long a step took; steps of repeated attempts stand repeatedly.
type StepTime struct {
	Step     Step          `json:"step"`
	Duration sale.Duration `json:"duration"`
}
