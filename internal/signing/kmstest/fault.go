// Package kmstest holds key services for tests and trials: servers on the
// loopback that speak the wire protocols of cloud KMSs, keep real keys and
// states, refuse what the real ones refuse, and misbehave when told to. The
// services reach them by an endpoint in FAIRPACT_SIGNING_KEY.
package kmstest

// Fault is a way to misbehave. A server that has no such field in its protocol
// does not have the fault.
type Fault string

// What a server may be told to do, at each call of its signing method unless it
// says otherwise.
const (
	None             Fault = ""
	CorruptedCRC     Fault = "corrupted CRC"
	MissingCRC       Fault = "missing CRC"
	UnverifiedDigest Fault = "unverified digest" // it did not check the digest's CRC
	OtherKeyName     Fault = "wrong key version name"
	HighS            Fault = "high s"
	GarbageDER       Fault = "garbage DER"
	OtherDigest      Fault = "a valid signature of another digest"
	OtherKey         Fault = "a signature by another key"
	Throttled        Fault = "throttling"
	ServerError      Fault = "internal server error"
	Overloaded       Fault = "service unavailable"
	Denied           Fault = "permission denied"
	Hang             Fault = "hang"               // until the caller gives up or the fault changes
	CutConnection    Fault = "cut connection"     // in the middle of the call
	Down             Fault = "connection refused" // every method; the port comes back with the next fault
)
