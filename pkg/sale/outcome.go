package sale

// Outcome is the answer to a grab. A refusal is an outcome, not an error.
type Outcome string

// Every outcome a grab can have, as it stands in the HTTP contract.
const (
	Won            Outcome = "won"
	Pending        Outcome = "pending" // granted, not yet known to be durable
	SoldOut        Outcome = "sold_out"
	AlreadyGrabbed Outcome = "already_grabbed"
	LimitExceeded  Outcome = "limit_exceeded"
	NotOpen        Outcome = "not_open"
	Paused         Outcome = "paused"
	Ended          Outcome = "ended"
	RateLimited    Outcome = "rate_limited"
	NotLoaded      Outcome = "not_loaded"  // Redis has no trusted state for the sale
	Unavailable    Outcome = "unavailable" // a dependency or a bound says no for now
)

// Outcomes lists every outcome, for metrics and documentation.
var Outcomes = []Outcome{
	Won, Pending, SoldOut, AlreadyGrabbed, LimitExceeded, NotOpen, Paused, Ended,
	RateLimited, NotLoaded, Unavailable,
}

// OutcomeNames lists every outcome as text.
func OutcomeNames() []string {
	names := make([]string, len(Outcomes))
	for i, o := range Outcomes {
		names[i] = string(o)
	}
	return names
}

// LimitPerUser is the name of the per-user limit in a limit_exceeded answer.
const LimitPerUser = "per_user_limit"
