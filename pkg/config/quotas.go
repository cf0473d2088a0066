package config

import "time"

// What becomes of a deduction from a quota that nobody made.
const (
	UnknownAllow  = "allow"
	UnknownRefuse = "refuse"
)

// Quotas says how deductions are answered.
type Quotas struct {
	Unknown  string        `name:"unknown-quota" default:"refuse" enum:"allow,refuse" help:"Answer to a deduction from a quota that does not exist: allow or refuse."`
	LoadWait time.Duration `name:"quota-load-wait" default:"3s" min:"10ms" max:"1m" help:"Longest wait of a deduction for its quota to be loaded, which the first one of a window has done. After it the answer is 503."`
}

// Gateways says which backends may return what they deducted.
type Gateways struct {
	Keys []string `name:"gateway-keys" secret:"" minlen:"16" placeholder:"KEY,..." help:"Keys of backends that may return deductions with POST /v1/quotas/{key}/returns, comma separated. They send one as a bearer token. Empty refuses all."`
}
