// Package canon reads strict JSON (I-JSON with integers only), writes its
// RFC 8785 form, and makes and opens the commitments over that form. It is
// pure: no I/O, no clock, no randomness, no logger.
//
// A tree is made of nil, bool, int64, string, []any and map[string]any; Parse
// makes no other type and Encode takes no other.
package canon

const (
	// MaxInt is 2^53−1: the largest integer that every JSON reader keeps exact
	// (RFC 7493 2.2). The smallest is −MaxInt.
	MaxInt int64 = 1<<53 - 1

	// MaxDepth is how many arrays and objects may lie one inside the other.
	MaxDepth = 32
	// MaxValues is how many values a text may hold, those inside others counted:
	// a certificate of 10,000 parties has 50,000.
	MaxValues = 1 << 17
)
