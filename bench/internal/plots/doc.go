// Package plots draws the figures of the measuring programs as SVG: panels with curves or bars, in rows and columns.
//
// It is a thin layer over gonum.org/v1/plot that fixes sizes, fonts and colours. It knows no benchmark; callers bring the values.
package plots
