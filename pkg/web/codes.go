package web

// The codes of problems. Clients decide by them, so a code never changes its
// meaning and never goes away. They are in the API documentation. Those that only
// the control plane has are in pkg/admin.
const (
	CodeBadRequest           = "bad_request"            // the request cannot be understood
	CodeInvalidField         = "invalid_field"          // one field, header or parameter is wrong; field names it
	CodeUnauthorized         = "unauthorized"           // nobody vouches for the caller
	CodeForbidden            = "forbidden"              // the caller is known, and may not
	CodeNotFound             = "not_found"              // no such path, sale, order, quota, ...
	CodeMethodNotAllowed     = "method_not_allowed"     // the path exists, with other methods
	CodeBodyTooLarge         = "body_too_large"         // more than MaxBody bytes
	CodeUnsupportedMediaType = "unsupported_media_type" // the body is not JSON
	CodeRateLimited          = "rate_limited"           // too many requests from this user or address
	CodeUnavailable          = "unavailable"            // a dependency cannot be reached, or the service is full; try again
	CodeNotLoaded            = "not_loaded"             // the sale's state is being restored; try again
	CodeInternal             = "internal"               // a fault of the service

	// Grabs that won nothing, by outcome.
	CodeSoldOut        = "sold_out"
	CodeAlreadyGrabbed = "already_grabbed"
	CodeLimitExceeded  = "limit_exceeded"
	CodeNotOpen        = "not_open"
	CodePaused         = "paused"
	CodeEnded          = "ended"

	// Changes that contradict what is stored.
	CodeConflict               = "conflict"                 // the thing is not in a state that allows the change
	CodeIdempotencyMismatch    = "idempotency_mismatch"     // the Idempotency-Key was used for another request
	CodeOrderExpired           = "order_expired"            // the payment came too late
	CodeOrderProcessing        = "order_processing"         // the order is not written yet; try again
	CodeOrderNotCancellable    = "order_not_cancellable"    // the order is past the point of cancelling
	CodeOrderNotPayable        = "order_not_payable"        // the order is not waiting for a payment
	CodeOrderNotReturnable     = "order_not_returnable"     // nothing of the order can come back in its state
	CodeReturnExceedsOrder     = "return_exceeds_order"     // more would come back than was sold
	CodeReturnExceedsDeduction = "return_exceeds_deduction" // more would come back than was deducted
)
