// Package canon reads strict JSON (I-JSON with integers only), writes its RFC 8785
// form, and makes and opens commitments over that form. It is pure: no I/O, clock,
// randomness or logger.
//
// In Go, a JSON value is a tree of nil, bool, int64, string, []any and map[string]any.
// Parse returns trees and Encode accepts them.
package canon

const (
	// MaxInt is 2^53−1, the largest integer that every JSON reader reads exactly
	// (RFC 7493 2.2). The smallest is −MaxInt.
	MaxInt int64 = 1<<53 - 1

	// MaxDepth is the maximum number of levels of nested arrays and objects.
	MaxDepth = 32
	// MaxValues is the maximum number of values in a text. It bounds the memory that a small text
	// can take. A certificate of 10,000 parties has over 50,000 values.
	MaxValues = 1 << 17
)
