package numerals

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Short writes four significant digits, and every digit before the point: 0.07188, 12.35, 123456. Below a millionth it
// writes an exponent, 8.221e-65, so that a table keeps its width.
func Short(v float64) string {
	if v != 0 && math.Abs(v) < 1e-6 {
		return strconv.FormatFloat(v, 'e', 3, 64)
	}
	if math.Abs(v) < 1000 {
		v, _ = strconv.ParseFloat(strconv.FormatFloat(v, 'g', 4, 64), 64) // it reads what it wrote itself
		return strconv.FormatFloat(v, 'f', -1, 64)
	}
	return strconv.FormatFloat(v, 'f', 0, 64)
}

// Count writes a number and its noun, whose plural is regular: "1 replica", "2 replicas", "0 queries", "3 batches".
func Count[N int | int64 | uint64](n N, noun string) string {
	text := fmt.Sprint(n) + " "
	if n == 1 {
		return text + noun
	}
	if stem, ok := strings.CutSuffix(noun, "y"); ok && !strings.ContainsAny(stem[len(stem)-1:], "aeiou") {
		return text + stem + "ies"
	}
	for _, sibilant := range []string{"s", "ch", "sh", "x"} {
		if strings.HasSuffix(noun, sibilant) {
			return text + noun + "es"
		}
	}
	return text + noun + "s"
}

// PerSecond writes a rate as Short does, and 0 for one that is only what fades of an average: less than one in a million seconds.
func PerSecond(rate float64) string {
	if math.Abs(rate) < 1e-6 {
		return "0"
	}
	return Short(rate)
}

// Percent writes a fraction as a percentage with four significant digits: 0.125 is 12.5%.
func Percent(fraction float64) string { return Short(100*fraction) + "%" }

// Thousands rounds to a whole number and groups its digits by three: 1,234,567.
func Thousands(v float64) string {
	digits := strconv.FormatFloat(v, 'f', 0, 64)
	if math.IsInf(v, 0) || math.IsNaN(v) {
		return digits
	}
	sign := ""
	if digits[0] == '-' {
		sign, digits = "-", digits[1:]
	}
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return sign + digits
}
