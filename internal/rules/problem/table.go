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
	InvalidSeal           Code = "INVALID_SEAL"
	SealRequired          Code = "SEAL_REQUIRED"

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

// Table lists every error code, its HTTP status, and when the service returns it.
var Table = []Entry{
	{InvalidJSON, 400, "the body is not strict I-JSON: bad syntax, a duplicate member, a number that is not an integer within ±(2^53−1), a lone surrogate, more than 32 levels of nesting, or more than 131,072 values"},
	{InvalidRequest, 400, "a member is missing, null, of the wrong type or out of range, title or message breaks its rule, or the request is not well-formed HTTP"},
	{InvalidParams, 400, "party_labels or algorithm_params do not fit the algorithm"},
	{InvalidCommitment, 400, "the commitment is not `sha256:` followed by 64 lower-case hex digits"},
	{InvalidInput, 400, "the revealed input opens its commitment but does not fit the algorithm"},
	{InvalidIdempotencyKey, 400, "Idempotency-Key is not 1 to 255 visible ASCII characters"},
	{CommitmentMismatch, 400, "input and salt do not hash to the party's commitment"},
	{InvalidPartySignature, 400, "party_signature does not verify under party_key for the bytes that a seat key signs"},
	{InvalidSeal, 400, "the seal is not a timelock seal in canonical form for the beacon chain and round of the deal, or the deal leaves no time for seals"},
	{SealRequired, 400, "the deal declares seals `required`, and the commitment came without a seal"},

	{AuthRequired, 401, "no Bearer credential was sent"},
	{InvalidCredential, 401, "the Bearer credential is unknown"},
	{Forbidden, 403, "the credential is valid but not for this deal or operation"},
	{SeatKeyRequired, 403, "the initiator declared a key for this party, and that key did not sign the commitment"},

	{NotFound, 404, "no such path"},
	{DealNotFound, 404, "no such deal"},
	{CertNotFound, 404, "no published certificate has this cert_id"},
	{LeafNotFound, 404, "no published head covers a leaf with this index or entry"},
	{HeadNotFound, 404, "the log published no head of this size"},
	{CheckpointNotFound, 404, "the log publishes no checkpoints, has none of this size, has no witness policy, or its witnesses have not reached the quorum yet"},
	{TileNotFound, 404, "the newest checkpoint does not cover the tile to this width, or the path of the tile is not in canonical form"},
	{MethodNotAllowed, 405, "the path exists but does not accept this method"},
	{BodyTooLarge, 413, "the body is over the limit"},
	{HeadersTooLarge, 431, "the path and headers are over the limit"},

	{AlreadyCommitted, 409, "this party has committed"},
	{AlreadyRevealed, 409, "this party has revealed"},
	{DeadlinePassed, 409, "the commit or reveal deadline has passed; the deal is VOID"},
	{CommitsMissing, 409, "a reveal was sent before all parties committed"},
	{RevealsMissing, 409, "entropy was called before all parties revealed"},
	{DealEnded, 409, "the deal is COMPUTED, CERTIFIED, VOID, EXPIRED or CANCELLED"},
	{CannotCancel, 409, "a counterparty has committed, or the deal has ended"},
	{WrongAlgorithm, 409, "entropy is for random.v1 only"},
	{BeaconNotReady, 409, "the deal's beacon round is not published yet"},
	{CertNotReady, 409, "the certificate is not issued yet"},
	{NoCertificate, 409, "the deal has no certificate and never gets one"},
	{InputsSealed, 409, "the deal has retention `purge` or ended without a result, its contents are deleted, or its mode is `sealed` and not all parties have consented to show their inputs"},
	{InputsNotReady, 409, "a deal shows inputs only after it is COMPUTED"},
	{IdempotencyKeyReused, 409, "the Idempotency-Key was used with another body"},
	{IdempotencyInProgress, 409, "a request with this Idempotency-Key is still running"},
	{TagTaken, 409, "on the private append port: the log has another certificate of the deal"},

	{RateLimited, 429, "this network or API key has reached its limit for this minute, the open deals of this API key have reached their limit, or too many calls from this network are waiting"},
	{Internal, 500, "an unforeseen fault inside the service"},
	{BeaconUnavailable, 502, "no beacon relay returned a value that verifies"},
	{Overloaded, 503, "too many requests, bodies, answers or connections are in progress, too many calls are waiting, or too many beacon rounds were asked for"},
	{Unavailable, 503, "the database is out of reach, or a server secret is missing or being rotated"},
	{ReadOnly, 503, "the service accepts no changes now, because of maintenance or a database failover"},
	{LogUnavailable, 503, "the transparency log is out of reach"},
	{LogInconsistent, 503, "the stored nodes of the log do not match its signed head, a stored certificate does not verify, or the log has another certificate of the deal"},
}
