// Package numerals writes numbers for people: in tables, sentences and pictures. Programs read JSON, where numbers are
// whole.
//
// Every function is pure and takes any number. None of them prints a power of ten: a table with 1e+06 in it is hard to
// scan.
package numerals
