package web

// The codes of problems. Clients decide by them, so a code never changes its
// meaning and never goes away. They are in the API documentation. The code of a
// grab that won nothing is its outcome, see sale.Outcome. Those that only
// the control plane has are in pkg/admin.
const (
	CodeBadRequest           = "bad_request"            // the request cannot be understood
	CodeInvalidField         = "invalid_field"          // one field, header or parameter is wrong; field names it
	CodeUnauthorized         = "unauthorized"           // nobody vouches for the caller
	CodeNotFound             = "not_found"              // no such path, sale, order, quota, ...
	CodeMethodNotAllowed     = "method_not_allowed"     // the path exists, with other methods
	CodeBodyTooLarge         = "body_too_large"         // more than MaxBody bytes
	CodeUnsupportedMediaType = "unsupported_media_type" // the body is not JSON
	CodeRateLimited          = "rate_limited"           // too many requests from this user or address
	CodeUnavailable          = "unavailable"            // a dependency cannot be reached, or the service is full; try again
	CodeNotLoaded            = "not_loaded"             // the sale's state is being restored; try again
	CodeInternal             = "internal"               // a fault of the service

	// Changes that contradict what is stored.
	CodeConflict            = "conflict"              // the thing is not in a state that allows the change
	CodeIdempotencyMismatch = "idempotency_mismatch"  // the Idempotency-Key was used for another request
	CodeOrderProcessing     = "order_processing"      // the order is not written yet; try again
	CodeOrderNotCancellable = "order_not_cancellable" // the order is past the point of cancelling
)
