package problem

// The error codes. SPEC 7.3 names AUTH_REQUIRED, CERT_NOT_READY and NO_CERTIFICATE.
const (
	InvalidJSON           Code = "INVALID_JSON"
	InvalidRequest        Code = "INVALID_REQUEST"
	InvalidParams         Code = "INVALID_PARAMS"
	InvalidCommitment     Code = "INVALID_COMMITMENT"
	InvalidInput          Code = "INVALID_INPUT"
	InvalidIdempotencyKey Code = "INVALID_IDEMPOTENCY_KEY"
	CommitmentMismatch    Code = "COMMITMENT_MISMATCH"
	InvalidPartySignature Code = "INVALID_PARTY_SIGNATURE"

	AuthRequired      Code = "AUTH_REQUIRED"
	InvalidCredential Code = "INVALID_CREDENTIAL" // #nosec G101 -- an error code
	Forbidden         Code = "FORBIDDEN"
	SeatKeyRequired   Code = "SEAT_KEY_REQUIRED"

	NotFound           Code = "NOT_FOUND"
	DealNotFound       Code = "DEAL_NOT_FOUND"
	CertNotFound       Code = "CERT_NOT_FOUND"
	LeafNotFound       Code = "LEAF_NOT_FOUND"
	HeadNotFound       Code = "HEAD_NOT_FOUND"
	CheckpointNotFound Code = "CHECKPOINT_NOT_FOUND"
	TileNotFound       Code = "TILE_NOT_FOUND"
	MethodNotAllowed   Code = "METHOD_NOT_ALLOWED"
	BodyTooLarge       Code = "BODY_TOO_LARGE"
	HeadersTooLarge    Code = "HEADERS_TOO_LARGE"

	AlreadyCommitted      Code = "ALREADY_COMMITTED"
	AlreadyRevealed       Code = "ALREADY_REVEALED"
	DeadlinePassed        Code = "DEADLINE_PASSED"
	CommitsMissing        Code = "COMMITS_MISSING"
	RevealsMissing        Code = "REVEALS_MISSING"
	DealEnded             Code = "DEAL_ENDED"
	CannotCancel          Code = "CANNOT_CANCEL"
	WrongAlgorithm        Code = "WRONG_ALGORITHM"
	BeaconNotReady        Code = "BEACON_NOT_READY"
	CertNotReady          Code = "CERT_NOT_READY"
	NoCertificate         Code = "NO_CERTIFICATE"
	InputsSealed          Code = "INPUTS_SEALED"
	InputsNotReady        Code = "INPUTS_NOT_READY"
	IdempotencyKeyReused  Code = "IDEMPOTENCY_KEY_REUSED"
	IdempotencyInProgress Code = "IDEMPOTENCY_IN_PROGRESS"
	TagTaken              Code = "TAG_TAKEN"

	RateLimited       Code = "RATE_LIMITED"
	Overloaded        Code = "OVERLOADED"
	Internal          Code = "INTERNAL"
	BeaconUnavailable Code = "BEACON_UNAVAILABLE"
	Unavailable       Code = "UNAVAILABLE"
	ReadOnly          Code = "READ_ONLY"
	LogUnavailable    Code = "LOG_UNAVAILABLE"
	LogInconsistent   Code = "LOG_INCONSISTENT"
)

// Table lists every code with its status and its condition.
var Table = []Entry{
	{InvalidJSON, 400, "the body is not strict I-JSON: syntax, a duplicate member, a number that is not an integer within ±(2^53−1), a lone surrogate, nesting over 32"},
	{InvalidRequest, 400, "a member is missing, null, of the wrong type or out of range, or the request is not well-formed HTTP"},
	{InvalidParams, 400, "party_labels or algorithm_params do not fit the algorithm"},
	{InvalidCommitment, 400, "the commitment is not sha256: and 64 lower-case hex digits"},
	{InvalidInput, 400, "the revealed input opens its commitment but does not fit the algorithm"},
	{InvalidIdempotencyKey, 400, "Idempotency-Key is not 1 to 255 visible ASCII characters"},
	{CommitmentMismatch, 400, "input and salt do not hash to the party's commitment"},
	{InvalidPartySignature, 400, "party_signature is not a signature by party_key of the bytes that a seat key signs"},

	{AuthRequired, 401, "no Bearer credential was sent"},
	{InvalidCredential, 401, "the Bearer credential is unknown"},
	{Forbidden, 403, "the credential is valid but not for this deal or operation"},
	{SeatKeyRequired, 403, "the initiator declared a key for this party, and the commitment is not signed by it"},

	{NotFound, 404, "no such path"},
	{DealNotFound, 404, "no such deal"},
	{CertNotFound, 404, "no published certificate has this cert_id"},
	{LeafNotFound, 404, "no leaf of the log under a published head has this index or entry"},
	{HeadNotFound, 404, "the log published no head of this size"},
	{CheckpointNotFound, 404, "the log publishes no checkpoints, none of this size, or has no witness policy"},
	{TileNotFound, 404, "the tile is not complete to this width under the newest checkpoint, or its path is not in canonical form"},
	{MethodNotAllowed, 405, "the path exists, the method does not"},
	{BodyTooLarge, 413, "the body is over the limit"},
	{HeadersTooLarge, 431, "the path and headers are over the limit"},

	{AlreadyCommitted, 409, "this party has committed"},
	{AlreadyRevealed, 409, "this party has revealed"},
	{DeadlinePassed, 409, "the commit or reveal deadline has passed; the deal is VOID"},
	{CommitsMissing, 409, "a reveal before all parties have committed"},
	{RevealsMissing, 409, "entropy before all parties have revealed"},
	{DealEnded, 409, "the deal is COMPUTED, CERTIFIED, VOID, EXPIRED or CANCELLED"},
	{CannotCancel, 409, "a counterparty has committed, or the deal has ended"},
	{WrongAlgorithm, 409, "entropy is for random.v1 only"},
	{BeaconNotReady, 409, "the deal's beacon round is not out yet"},
	{CertNotReady, 409, "the certificate is not issued yet"},
	{NoCertificate, 409, "no certificate exists or ever will"},
	{InputsSealed, 409, "the deal is sealed or its inputs were purged: they are never disclosed"},
	{InputsNotReady, 409, "the inputs of an open deal can be read once it is COMPUTED"},
	{IdempotencyKeyReused, 409, "the Idempotency-Key was used with another body"},
	{IdempotencyInProgress, 409, "a request with this Idempotency-Key is still running"},
	{TagTaken, 409, "on the private append port: the log has another certificate of the deal"},

	{RateLimited, 429, "this address or API key has used up its limit for a minute, the open deals of this API key cost too much, or too many calls of this network wait"},
	{Internal, 500, "an unforeseen fault inside the service"},
	{BeaconUnavailable, 502, "no beacon relay returned a value that verifies"},
	{Overloaded, 503, "more is being sent or asked for than this service handles at once, or too many calls wait"},
	{Unavailable, 503, "the database is out of reach, or a server secret is missing or being rotated"},
	{ReadOnly, 503, "the service takes no changes now: maintenance, or its database fails over"},
	{LogUnavailable, 503, "the transparency log is out of reach"},
	{LogInconsistent, 503, "the stored nodes of the log do not match its signed head, or a stored certificate does not verify"},
}
