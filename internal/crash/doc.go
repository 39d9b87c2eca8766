// Package crash marks the points at which the recovery tests kill a process.
//
// The points exist only in binaries built with the tag crashpoints; in every
// other build Point is an empty function that the compiler removes.
package crash
