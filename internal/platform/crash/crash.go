// Package crash lets tests change how a process runs: they kill it at a named point, shift
// its clock, and shorten long intervals.
//
// The package has an effect only in binaries built with the tag crashpoints. In every other
// build, Point is an empty function that the compiler removes, Now returns time.Now(), and
// Setting returns "".
package crash
