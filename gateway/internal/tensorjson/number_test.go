package tensorjson

import (
	"encoding/binary"
	"math"
	"math/big"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"

	"github.com/xebec-serving/xebec/api"
)

func TestPowersOfTen(t *testing.T) {
	for e := minPow10; e <= maxPow10; e++ {
		// 10^e = m × 2^k with m of 128 bits, rounded down.
		num, den := big.NewInt(1), big.NewInt(1)
		ten := new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(max(e, -e))), nil)
		if e >= 0 {
			num = ten
		} else {
			den = ten
		}
		num.Lsh(num, 600)
		m := new(big.Int).Quo(num, den)
		m.Rsh(m, uint(m.BitLen()-128))
		lo := new(big.Int).And(m, new(big.Int).SetUint64(math.MaxUint64)).Uint64()
		hi := m.Rsh(m, 64).Uint64()
		if got := pow10[e-minPow10]; got != [2]uint64{hi, lo} {
			t.Errorf("10^%d: got %x, want {%x %x}", e, got, hi, lo)
		}
	}
}

// numbers are texts that decimal parsers have got wrong.
var numbers = []string{
	"0", "-0", "0.0", "-0.0e10", "1", "-1", "10", "100000000", "12345678", "123456789", "1234567890123456789", "12345678901234567890",
	"9007199254740993", "9007199254740992.5", "18446744073709551615", "18446744073709551616", "99999999999999999999",
	"0.1", "0.2", "0.3", "0.5", "0.25", "1e22", "1e23", "1e-22", "1e-23", "123456789e-20", "1.7976931348623157e308", "1.7976931348623159e308",
	"1.797693134862315708145274237317e308", "4.9e-324", "2.4703282292062327e-324", "2.4703282292062328e-324", "2.2250738585072011e-308",
	"2.2250738585072014e-308", "3.4028234663852886e38", "3.4028235677973366e38", "3.4028235677973365e38", "1.401298464324817e-45",
	"7.006492321624085e-46", "7.006492321624086e-46", "1.1754943508222875e-38", "1.1754942807573643e-38", "16777217", "16777219", "16777217.0000000001",
	"16777216.9999999999", "33554433", "0.00392156862745098", "0.000000000000000000123456789", "1e400", "-1e400", "1e-400", "0e999999999", "1e99999999999999999999",
	"1e-99999999999999999999", "1.00000000000000011102230246251565404", "1.00000000000000011102230246251565405", "1.00000000000000011102230246251565403",
	"8.5899345920000000001e9", "1.00000005960464477540", "1.00000005960464477539", "1.000000059604644775390625", "1.0000000596046447753906250000000001",
	"2049", "2051", "2049.0000000000000001", "2048.9999999999999999", "65519.999999999999999999999", "65520", "65504", "1.00048828125", "1.00048828125000000000000000000001",
	"1.0014648437499999999999999999", "1.00146484375", "0.000000029802322387695312500", "0.00000002980232238769531250000000000000000000001", "5.960464477539063e-8",
	"20490e-1", "0.2049e4", "20490000000000000000000000000000e-28", "2049e0", "0.00000000000002049e17",
}

func checkFloat(t *testing.T, s string) {
	t.Helper()
	want64, err64 := strconv.ParseFloat(s, 64)
	want32, err32 := strconv.ParseFloat(s, 32)
	w, exp, next, flags := scan([]byte(s), 0)
	if flags&malformed != 0 || next != len(s) {
		t.Fatalf("%s: scanned %d of %d bytes, flags %d", s, next, len(s), flags)
	}
	if got, ok := toFloat64(w, exp, flags, []byte(s)); ok != (err64 == nil) || ok && math.Float64bits(got) != math.Float64bits(want64) {
		t.Errorf("float64 %s: got %v %v, want %v %v", s, got, ok, want64, err64)
	}
	if got, ok := toFloat32(w, exp, flags, []byte(s)); ok != (err32 == nil) || ok && math.Float32bits(got) != math.Float32bits(float32(want32)) {
		t.Errorf("float32 %s: got %v %v, want %v %v", s, got, ok, float32(want32), err32)
	}
	checkValue(t, s, api.Float64, math.Float64bits(want64), err64)
	checkValue(t, s, api.Float32, uint64(math.Float32bits(float32(want32))), err32)
	if err64 != nil || math.Abs(want64) < 1e-40 || len(s) > 400 {
		return
	}
	got, ok := toFloat16(w, exp, flags, []byte(s))
	if want := round16(t, s); ok != (want&0x7fff < 0x7c00) || ok && got != want {
		t.Errorf("float16 %s: got %04x %v, want %04x", s, got, ok, want)
	}
	got, ok = toBFloat16(w, exp, flags, []byte(s))
	if want := roundBrain16(t, s); ok != (want&0x7fff < 0x7f80) || ok && got != want {
		t.Errorf("bfloat16 %s: got %04x %v, want %04x", s, got, ok, want)
	}
}

// checkValue parses s as an element of a tensor, with and without text after it (so that eight bytes can be read at
// once).
func checkValue(t *testing.T, s string, dtype api.DType, want uint64, wantErr error) {
	t.Helper()
	spec := api.TensorSpec{Name: "x", DType: dtype, Shape: []int64{-1}}
	for _, body := range []string{"[" + s + "]", "[" + s + strings.Repeat(" ", plainAhead) + "]", "[ " + s + ",0." + strings.Repeat("0", plainAhead) + "]"} {
		var r Reader
		var v api.Value
		r.Reset([]byte(body))
		err := r.Value(&v, &spec)
		if (err == nil) != (wantErr == nil) {
			t.Errorf("%s of %s: got %v, want %v", dtype, body, err, wantErr)
			continue
		}
		if err != nil {
			continue
		}
		var wide [8]byte
		copy(wide[:], v.Data[:dtype.Size()])
		if got := binary.LittleEndian.Uint64(wide[:]); got != want {
			t.Errorf("%s of %s: got %x, want %x", dtype, body, got, want)
		}
	}
}

// round16 rounds a decimal to the nearest half by exact arithmetic.
func round16(t *testing.T, s string) uint16 {
	t.Helper()
	return roundExactly(t, s, 0x7c00, 65536, api.Float16ToFloat32)
}

// roundBrain16 is round16 for bfloat16.
func roundBrain16(t *testing.T, s string) uint16 {
	t.Helper()
	return roundExactly(t, s, 0x7f80, 0x1p128, api.BFloat16ToFloat32)
}

// roundExactly rounds to a type of 16 bits whose infinity has the bits inf, and would be top if it were finite.
func roundExactly(t *testing.T, s string, inf int, top float64, widen func(uint16) float32) uint16 {
	t.Helper()
	x, ok := new(big.Rat).SetString(s)
	if !ok {
		t.Fatalf("big.Rat cannot parse %s", s)
	}
	sign := uint16(0)
	if s[0] == '-' {
		sign = 0x8000
		x.Neg(x)
	}
	value := func(h int) *big.Rat {
		if h == inf {
			return new(big.Rat).SetFloat64(top)
		}
		return new(big.Rat).SetFloat64(float64(widen(uint16(h))))
	}
	lo, hi := 0, inf
	if x.Cmp(value(hi)) >= 0 {
		return sign | uint16(inf)
	}
	for hi-lo > 1 {
		if mid := (lo + hi) / 2; x.Cmp(value(mid)) >= 0 {
			lo = mid
		} else {
			hi = mid
		}
	}
	below, above := new(big.Rat).Sub(x, value(lo)), new(big.Rat).Sub(value(hi), x)
	switch c := below.Cmp(above); {
	case c > 0, c == 0 && lo&1 == 1:
		return sign | uint16(hi)
	}
	return sign | uint16(lo)
}

func TestFloatsAsStrconv(t *testing.T) {
	for _, s := range numbers {
		checkFloat(t, s)
		if s[0] != '-' {
			checkFloat(t, "-"+s)
		}
	}
	rng := rand.New(rand.NewPCG(1, 2))
	for range 5_000 {
		bits := rng.Uint64()
		f := math.Float64frombits(bits)
		if math.IsNaN(f) || math.IsInf(f, 0) {
			continue
		}
		checkFloat(t, strconv.FormatFloat(f, 'e', -1, 64))
		checkFloat(t, strconv.FormatFloat(rng.NormFloat64(), 'f', rng.IntN(25), 64))
		// Ties between float32s, and their nearest neighbours in float64.
		tie := math.Float64frombits(uint64(1023+rng.IntN(40)-20)<<52 | uint64(rng.Uint32()>>9)<<29 | 1<<28)
		checkFloat(t, strconv.FormatFloat(tie, 'f', -1, 64))
		near := math.Float64frombits(math.Float64bits(tie) + uint64(rng.IntN(13)) - 6)
		checkFloat(t, strconv.FormatFloat(near, 'f', -1, 64))
		checkFloat(t, strconv.FormatFloat(float64(math.Float32frombits(rng.Uint32()&0x7f7fffff)), 'e', rng.IntN(20), 64))
	}
	for h := 0; h < 0x7c00; h += 1 + rng.IntN(16) {
		// Halves, ties between them, and decimals so close to the ties that float64 cannot distinguish them.
		lo, hi := float64(api.Float16ToFloat32(uint16(h))), 65536.0
		if h < 0x7bff {
			hi = float64(api.Float16ToFloat32(uint16(h + 1)))
		}
		tie := strconv.FormatFloat((lo+hi)/2, 'f', 30, 64)
		checkFloat(t, strconv.FormatFloat(lo, 'g', -1, 64))
		checkFloat(t, tie)
		checkFloat(t, tie+"0000000001")
		checkFloat(t, "-"+tie+"0000000001e0")
		below, _ := new(big.Rat).SetString(tie)
		below.Sub(below, new(big.Rat).SetFrac64(1, 1e18))
		checkFloat(t, below.FloatString(40))
	}
	for h := 0; h < 0x7f80; h += 1 + rng.IntN(64) { // the same for bfloat16
		lo, hi := float64(api.BFloat16ToFloat32(uint16(h))), 0x1p128
		if h < 0x7f7f {
			hi = float64(api.BFloat16ToFloat32(uint16(h + 1)))
		}
		for _, s := range []string{strconv.FormatFloat(lo, 'g', -1, 64), strconv.FormatFloat((lo+hi)/2, 'f', 140, 64), strconv.FormatFloat((lo+hi)/2, 'f', 140, 64) + "01", strconv.FormatFloat((lo+hi)/2, 'e', 110, 64)} {
			w, exp, _, flags := scan([]byte(s), 0)
			got, ok := toBFloat16(w, exp, flags, []byte(s))
			if want := roundBrain16(t, s); ok != (want < 0x7f80) || ok && got != want {
				t.Errorf("bfloat16 %s: got %04x %v, want %04x", s, got, ok, want)
			}
		}
	}
}

func TestIntegers(t *testing.T) {
	for _, c := range []struct {
		text  string
		minus bool
		mag   uint64
		st    status
	}{
		{"0", false, 0, numOK}, {"-0", true, 0, numOK}, {"7", false, 7, numOK}, {"-7", true, 7, numOK}, {"1.0", false, 1, numOK},
		{"1e2", false, 100, numOK}, {"1.50e1", false, 15, numOK}, {"1.5", false, 0, numFraction}, {"1e-1", false, 0, numFraction},
		{"10e-1", false, 1, numOK}, {"18446744073709551615", false, math.MaxUint64, numOK}, {"18446744073709551616", false, 0, numRange},
		{"1844674407370955161.5e1", false, math.MaxUint64, numOK}, {"1e20", false, 0, numRange}, {"1e19", false, 1e19, numOK},
		{"0e99999999999", false, 0, numOK}, {"1e99999999999", false, 0, numRange}, {"1e-99999999999", false, 0, numFraction},
		{"0.000000000000000000000000000001e30", false, 1, numOK}, {"100000000000000000000000000000000e-32", false, 1, numOK},
		{"0.0", false, 0, numOK}, {"1.", false, 0, numSyntax}, {"01", false, 0, numSyntax}, {"+1", false, 0, numSyntax}, {".5", false, 0, numSyntax},
		{"-", false, 0, numSyntax}, {"1e", false, 0, numSyntax}, {"1e+", false, 0, numSyntax}, {"", false, 0, numSyntax}, {"x", false, 0, numSyntax},
		{"00", false, 0, numSyntax}, {"-01", false, 0, numSyntax},
	} {
		minus, mag, _, st := integer([]byte(c.text), 0)
		if st != c.st || st == numOK && (minus != c.minus || mag != c.mag) {
			t.Errorf("%q: got %v %d %d, want %v %d %d", c.text, minus, mag, st, c.minus, c.mag, c.st)
		}
	}
}
