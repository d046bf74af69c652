package tensorjson

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"math/bits"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"

	"github.com/xebec-serving/xebec/api"
)

// Which texts are plain: the loop must read these itself, and stop before the others.
func TestPlains(t *testing.T) {
	for _, c := range []struct {
		text   string
		w      uint64
		places uint64
		plain  bool
	}{
		{"0", 0, 0, true}, {"7", 7, 0, true}, {"12", 12, 0, true}, {"12345678", 12345678, 0, true}, {"100", 100, 0, true},
		{"0.5", 5, 1, true}, {"9.25", 925, 2, true}, {"0.12345678", 12345678, 8, true}, {"1.123456789", 1123456789, 9, true}, {"0.000", 0, 3, true},
		{"3.1234567812345678", 31234567812345678, 16, true}, {"3.123456781234567890", 3123456781234567890, 18, true},
		{"0.1234567812345678901", 1234567812345678901, 19, true}, {"12.5", 125, 1, true}, {"1234567.5", 12345675, 1, true}, {"100.25", 10025, 2, true},
		{"12.12345678901234567", 1212345678901234567, 17, true}, {"1234567.123456781234", 1234567123456781234, 12, true},
		// Of another form.
		{"123456789", 0, 0, false}, {"12345678.5", 0, 0, false}, {"1e5", 0, 0, false}, {"1.5E5", 0, 0, false}, {"1.5e-5", 0, 0, false},
		{"1.1234567890123456789", 0, 0, false}, {"0.12345678901234567890", 0, 0, false}, {"12.123456789012345678", 0, 0, false}, {"null", 0, 0, false},
		{"0.12345678901234567890123456789", 0, 0, false}, {"true", 0, 0, false}, {"[1", 0, 0, false}, {`"1"`, 0, 0, false},
		// Not JSON.
		{"", 0, 0, false}, {"-", 0, 0, false}, {".", 0, 0, false}, {".5", 0, 0, false}, {"1.", 0, 0, false}, {"01", 0, 0, false}, {"00", 0, 0, false},
		{"01.5", 0, 0, false}, {"1.2.3", 0, 0, false}, {"1-2", 0, 0, false}, {"1.-2", 0, 0, false}, {"+1", 0, 0, false}, {"1 2", 0, 0, false}, {"0x1", 0, 0, false},
		{"1.12345678x", 0, 0, false}, {"1.12345678.1", 0, 0, false}, {"12.", 0, 0, false}, {"1:", 0, 0, false}, {"1/2", 0, 0, false}, {"0\x00", 0, 0, false}, {"--1", 0, 0, false},
		{"1.1234567812345678:", 0, 0, false}, {"12345678:", 0, 0, false}, {"1234567.1:", 0, 0, false}, {"0.é", 0, 0, false}, {"1\xb0", 0, 0, false},
	} {
		for _, sign := range []string{"", "-"} {
			for _, after := range []string{",", "]", ",-1.5]", "],"} {
				body := "[" + sign + c.text + after
				var out [plainRun]plain
				n, next := plains([]byte(body+strings.Repeat(" ", plainAhead)), 1, out[:1])
				if n == 0 && next != 1 {
					t.Errorf("%q: moved to %d without a number", body, next)
				}
				if (n == 1) != c.plain {
					t.Errorf("%q: %d numbers, plain: %v", body, n, c.plain)
				}
				if p := out[0]; n == 1 && (p.w != c.w || p.places() != c.places || p.minus() != (sign != "") || p.sign()>>63 != uint64(len(sign)) || p.offset() != 1 || next != 1+len(sign+c.text)) {
					t.Errorf("%q: got %d / 10^%d, minus %v, at %d, next %d", body, p.w, p.places(), p.minus(), p.offset(), next)
				}
			}
		}
	}
}

// The first mark is at the first byte that ends a number, whatever follows it.
func TestEnds(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for b := range 256 {
		for at := range 8 {
			for range 20 {
				var text [8]byte
				for i := range text {
					text[i] = "0123456789-."[rng.IntN(12)]
					if i > at {
						text[i] = byte(rng.Uint32())
					}
				}
				text[at] = byte(b)
				first := bits.TrailingZeros64(ends(binary.LittleEndian.Uint64(text[:]))) / 8
				switch {
				case b >= 0x80: // may be marked
					if first < at {
						t.Fatalf("%q: marked at %d", text, first)
					}
				case (b < '-' || b >= 0x40) != (first == at) || first < at:
					t.Fatalf("%q: the first mark is at %d", text, first)
				}
			}
		}
	}
}

// spellings returns the usual ways to write f, and some rare ones.
func spellings(rng *rand.Rand, f float64, bits int) []string {
	list := []string{
		strconv.FormatFloat(f, 'g', -1, bits), strconv.FormatFloat(f, 'e', -1, bits), fmt.Sprintf("%.17g", f), fmt.Sprintf("%.9g", f), fmt.Sprintf("%E", f), strconv.FormatFloat(f, 'g', -1, 64),
		fmt.Sprintf("%.*e", rng.IntN(25), f),
	}
	if math.Abs(f) < 1e25 {
		list = append(list, strconv.FormatFloat(f, 'f', -1, bits), fmt.Sprintf("%.*f", rng.IntN(30), f), fmt.Sprintf("%.*f", rng.IntN(10), f))
		list = append(list, strings.TrimSuffix(fmt.Sprintf("%.20f", f), "0")+strings.Repeat("0", rng.IntN(30)))
	}
	return list
}

// boundaries are where conversions go wrong: powers of two and of ten and their neighbours, the limits of both types, ties between float32s.
func boundaries() []float64 {
	list := []float64{0, math.Copysign(0, -1), 0.125, 1e-45, 1.4e-45, 7e-46, 3.4028234e38, 3.4028235e38, 3.4028236e38, 3.40282356e38, 3.4028235677973366e38, math.MaxFloat64, 5e-324, 1<<53 - 1, 1 << 53, 1<<53 + 2, 16777217, 16777219}
	for e := -160; e < 140; e++ {
		f := math.Ldexp(1, e)
		list = append(list, f, math.Nextafter(f, 0), math.Nextafter(f, math.Inf(1)), math.Float64frombits(math.Float64bits(f)|1<<28), math.Float64frombits(math.Float64bits(f)|3<<28))
	}
	for e := -22; e <= 22; e++ {
		f, _ := strconv.ParseFloat(fmt.Sprintf("1e%d", e), 64)
		list = append(list, f, 9.999999*f, 123456.789*f)
	}
	return list
}

// Whole arrays of numbers of all kinds, between white space of all kinds, read as strconv reads each number: runs of plain numbers and others follow one
// another, and the end of the text is near or far.
func TestArraysAsStrconv(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	var texts []string
	add := func(f float64, bits int) {
		if math.IsInf(float64(float32(f)), 0) {
			bits = 64
		}
		if !math.IsNaN(f) && !math.IsInf(f, 0) {
			texts = append(texts, spellings(rng, f, bits)...)
		}
	}
	for _, f := range boundaries() {
		add(f, 32)
		add(-f, 64)
	}
	for range 1000 {
		add(float64(math.Float32frombits(rng.Uint32())), 32)
		add(math.Float64frombits(rng.Uint64()), 64)
		add(rng.NormFloat64(), 64)
		add(float64(float32(100*rng.NormFloat64())), 32)
		add(float64(rng.IntN(1<<rng.IntN(30))), 64)
	}
	texts = append(texts, numbers...)
	rng.Shuffle(len(texts), func(i, k int) { texts[i], texts[k] = texts[k], texts[i] })
	spaces := []string{"", "", "", "", " ", "\n    ", "\t", "\r\n"}
	space := func() string { return spaces[rng.IntN(len(spaces))] }
	for len(texts) > 0 {
		n := 1 + rng.IntN(min(100, len(texts)))
		checkArray(t, texts[:n], space, strings.Repeat(" ", rng.IntN(2)*rng.IntN(60)))
		texts = texts[n:]
	}
}

// checkArray reads an array as float32 and as float64. Numbers out of range are left out of it: they must be refused alone.
func checkArray(t *testing.T, texts []string, space func() string, after string) {
	t.Helper()
	for _, dtype := range []api.DType{api.Float32, api.Float64} {
		var body, want []byte
		for _, s := range texts {
			f, err := strconv.ParseFloat(s, 8*dtype.Size())
			if !json.Valid([]byte(s)) {
				t.Fatalf("the test writes what is not JSON: %q", s)
			}
			if err != nil {
				if _, err := readTensor("["+s+"]", dtype); err == nil {
					t.Errorf("%s %s was accepted, and is out of range", dtype, s)
				}
				continue
			}
			if len(want) > 0 {
				body = append(body, space()+","...)
			}
			body = append(body, space()+s...)
			want = append(want, raw(dtype, f)...)
		}
		text := "[" + string(body) + space() + "]" + after
		if !json.Valid([]byte(text)) {
			t.Fatalf("the test writes what is not JSON: %s", text)
		}
		got, err := readTensor(text, dtype)
		if err != nil || string(got) != string(want) {
			for i := 0; i < min(len(got), len(want)); i += dtype.Size() {
				if string(got[i:i+dtype.Size()]) != string(want[i:i+dtype.Size()]) {
					t.Errorf("%s: element %d is %x, want %x", dtype, i/dtype.Size(), got[i:i+dtype.Size()], want[i:i+dtype.Size()])
				}
			}
			t.Fatalf("%s of %s: %v", dtype, text, err)
		}
	}
}

func readTensor(text string, dtype api.DType) ([]byte, error) {
	var r Reader
	var v api.Value
	r.Reset([]byte(text))
	if err := r.Value(&v, &api.TensorSpec{Name: "x", DType: dtype, Shape: []int64{-1}}); err != nil {
		return nil, err
	}
	return v.Data, r.End()
}

// Arrays of integers, in and out of the range of each type, read as strconv reads each: a fraction of zero is integral.
func TestIntegerArrays(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	for _, dtype := range []api.DType{api.Bool, api.Uint8, api.Int8, api.Uint16, api.Int16, api.Uint32, api.Int32, api.Uint64, api.Int64} {
		limit, signed := intLimit(dtype)
		for range 100 {
			var items []string
			var want []byte
			wrong := ""
			for range 1 + rng.IntN(80) {
				mag := rng.Uint64N(limit/2+1) + rng.Uint64N(limit/2+1)
				switch rng.IntN(4) {
				case 0:
					mag = rng.Uint64N(min(limit, 300) + 1)
				case 1:
					mag = limit - rng.Uint64N(min(limit, 2)+1)
				}
				text := strconv.FormatUint(mag, 10)
				if signed && rng.IntN(2) == 0 {
					if mag == limit {
						mag++ // the least number
					}
					text, mag = "-"+strconv.FormatUint(mag, 10), -mag
				}
				if rng.IntN(10) == 0 {
					text += ".0"
				}
				items = append(items, text)
				var wide [8]byte
				binary.LittleEndian.PutUint64(wide[:], mag)
				want = append(want, wide[:dtype.Size()]...)
			}
			if rng.IntN(4) == 0 {
				wrong = []string{"0.5", "1e-1", "null", strconv.FormatUint(limit, 10) + "5", "-" + strconv.FormatUint(limit, 10) + "5"}[rng.IntN(5)]
				items[rng.IntN(len(items))] = wrong
			}
			text := "[" + strings.Join(items, ",") + "]"
			got, err := readTensor(text, dtype)
			if (err != nil) != (wrong != "") || err == nil && string(got) != string(want) {
				t.Fatalf("%s of %s: %x, want %x, %v", dtype, text, got, want, err)
			}
		}
	}
}

// FuzzArray: an array of any text is accepted as a tensor exactly if encoding/json accepts it as numbers in range, and has strconv's values.
func FuzzArray(f *testing.F) {
	for _, s := range []string{"1,2,3", "0.5, -0.25,\n1e5", "-", "1,,2", "1,]", "0.12345678901234567890,1", "01", "1.", "1 ,2", "null", strings.Repeat("-0.12345678,", 40) + "1", strings.Repeat("1234567.5,", 9) + "x"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, list string) {
		text := "[" + list + "]"
		var items []json.Number
		valid := json.Unmarshal([]byte(text), &items) == nil && !strings.ContainsAny(list, `"[]`)
		for _, dtype := range []api.DType{api.Float32, api.Float64} {
			want, wantOK := []byte{}, valid
			for _, s := range items {
				if !valid {
					break
				}
				if s == "" { // null
					want = append(want, raw(dtype, math.NaN())...)
					continue
				}
				x, err := strconv.ParseFloat(string(s), 8*dtype.Size())
				wantOK = wantOK && err == nil
				want = append(want, raw(dtype, x)...)
			}
			got, err := readTensor(text, dtype)
			if (err == nil) != wantOK {
				t.Fatalf("%s of %q: %v, want it accepted: %v", dtype, text, err, wantOK)
			}
			if err == nil && !strings.Contains(list, "null") && string(got) != string(want) {
				t.Fatalf("%s of %q: %x, want %x", dtype, text, got, want)
			}
		}
	})
}
