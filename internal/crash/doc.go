// Package crash marks the points at which the recovery tests kill a process, and
// lets them set its clock apart from the others'.
//
// Both exist only in binaries built with the tag crashpoints; in every other build
// Point is an empty function that the compiler removes, and Now is time.Now.
package crash
