package admin

import (
	"cmp"
	"encoding/json"
	"fmt"
	"time"

	"github.com/doorbuster/doorbuster/pkg/sale"
	"github.com/doorbuster/doorbuster/pkg/web"
)

// What a fulfilment gets when its request leaves a field out.
const (
	defaultTrigger     = sale.FulfilPaid
	defaultGiveUpAfter = 24 * time.Hour
	defaultOnFailure   = sale.FailurePark
)

// fulfilmentDraft is how the shop's system is to be called.
type fulfilmentDraft struct {
	URL         string                 `json:"url"`
	Trigger     sale.FulfilmentTrigger `json:"trigger"`
	GiveUpAfter *string                `json:"give_up_after"`
	OnFailure   sale.FulfilmentFailure `json:"on_failure"`
}

// fulfilment reads the field of a request: null is that the shop is not called.
// The ranges are those of sale.Validate.
func fulfilment(text json.RawMessage) (*sale.Fulfilment, error) {
	draft, problem := web.DecodeField[*fulfilmentDraft]("fulfilment", text)
	if problem != nil {
		return nil, problem
	}
	if draft == nil {
		return nil, nil
	}
	f := &sale.Fulfilment{
		URL: draft.URL, Trigger: cmp.Or(draft.Trigger, defaultTrigger), OnFailure: cmp.Or(draft.OnFailure, defaultOnFailure),
		GiveUpAfter: sale.Duration(defaultGiveUpAfter),
	}
	if draft.GiveUpAfter == nil {
		return f, nil
	}
	after, err := time.ParseDuration(*draft.GiveUpAfter)
	if err != nil {
		return nil, &sale.FieldError{
			Field:   "fulfilment.give_up_after",
			Message: fmt.Sprintf("must be a duration such as 24h, from %s to %s", sale.MinGiveUpAfter, sale.MaxGiveUpAfter),
		}
	}
	f.GiveUpAfter = sale.Duration(after.Truncate(time.Millisecond))
	return f, nil
}
