package wire

import (
	"encoding/binary"
	"encoding/hex"
	"math"

	"github.com/xebec-serving/xebec/api"
)

// goldenRefused lists bytes that no decoder may accept, and why.
func goldenRefused() []*vector {
	return append(append(refusedFrames(), refusedDescriptors()...), refusedBlocks()...)
}

// changed returns a copy of b with the bytes from off on replaced.
func changed(b []byte, off int, with ...byte) []byte {
	c := append([]byte{}, b...)
	copy(c[off:], with)
	return c
}

func refusedFrames() []*vector {
	v := func(name, why string, b []byte) *vector {
		return &vector{Name: name, Kind: "frame", Why: why, Hex: hex.EncodeToString(b)}
	}
	ready := (&Ready{Generation: 1}).Append(nil)
	leaving := (&Leaving{Reason: "ab"}).Append(nil)
	hello := (&Hello{Major: 1, Token: "t", Model: "m", Version: "1", Binding: "b",
		Signature: &api.Signature{Inputs: specs("x float32[4]")}}).Append(nil)
	noSignature := (&Hello{Major: 1, Token: "t", Model: "m", Version: "1", Binding: "b"}).Append(nil)
	// The signature is the last 22 bytes: u16 1; u16 1, "x"; dtype, rank, i64 4; u16 0 … of which dtype is the 12th last.
	dtypeAt := len(hello) - 12
	tensors := len(hello) - 17
	return []*vector{
		v("frame_type_0", "type 0x00 does not exist", []byte{0, 0, 0, 0, 0, 0, 0, 0}),
		v("frame_type_unknown", "type 0x0b does not exist", changed(ready, 0, 11)),
		v("frame_type_remote", "types 0x20-0x2f are for workers on other hosts", changed(ready, 0, 0x20)),
		v("frame_reserved_byte", "byte 1 of the header is reserved and must be 0", changed(ready, 1, 1)),
		v("frame_reserved_u16", "bytes 2 and 3 of the header are reserved and must be 0", changed(ready, 3, 0x80)),
		v("frame_too_long", "the payload may have at most 65,536 bytes", changed(ready, 4, 1, 0, 1, 0)),
		v("ready_too_short", "READY needs 4 bytes of payload", []byte{5, 0, 0, 0, 3, 0, 0, 0, 1, 0, 0}),
		v("ready_too_long", "one byte follows READY's only field", append(changed(ready, 4, 5), 0)),
		v("drain_with_payload", "DRAIN has no payload", []byte{8, 0, 0, 0, 1, 0, 0, 0, 0}),
		v("lines_with_payload", "LINES has no payload", []byte{10, 0, 0, 0, 1, 0, 0, 0, 0}),
		v("cancel_too_short", "CANCEL needs 8 bytes of payload", []byte{9, 0, 0, 0, 4, 0, 0, 0, 1, 0, 0, 0}),
		v("leaving_string_too_long", "the string's length exceeds the payload", changed(leaving, 8, 3)),
		v("leaving_not_utf8", "the reason is not UTF-8", changed(leaving, 10, 0xff)),
		v("hello_has_signature_2", "has_signature must be 0 or 1", changed(noSignature, len(noSignature)-1, 2)),
		v("hello_signature_missing", "has_signature is 1 and no signature follows", changed(noSignature, len(noSignature)-1, 1)),
		v("hello_65_inputs", "a signature has at most 64 inputs", changed(hello, tensors, 65)),
		v("hello_dtype_200", "dtype 200 does not exist", changed(hello, dtypeAt, 200)),
		v("hello_dtype_0", "dtype 0 does not exist", changed(hello, dtypeAt, 0)),
		v("hello_rank_17", "the rank is at most 16", changed(hello, dtypeAt+1, 17)),
		v("hello_dimension_minus_2", "a dimension is -1 or at least 0", changed(hello, dtypeAt+2, 0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff)),
		v("request_frame_short", "REQUEST carries exactly 64 bytes", append([]byte{0x10, 0, 0, 0, 63, 0, 0, 0}, make([]byte, 63)...)),
		v("response_frame_long", "RESPONSE carries exactly 64 bytes", append([]byte{0x11, 0, 0, 0, 65, 0, 0, 0}, make([]byte, 65)...)),
		{Name: "stream_garbage_after_bell", Kind: "stream", Why: "0xff after a bell is no frame type", Hex: "01ff"},
	}
}

func refusedDescriptors() []*vector {
	var req, res, accuracy [DescriptorBytes]byte
	goldenRequest.Put(&req)
	goldenResponse.Put(&res)
	(&Request{Batch: 1, Generation: 1, Kind: KindAccuracy, OutCap: 128}).Put(&accuracy)
	v := func(kind, name, why string, b []byte) *vector {
		return &vector{Name: name, Kind: kind, Why: why, Hex: hex.EncodeToString(b)}
	}
	return []*vector{
		v("request", "request_kind_0", "kind 0 does not exist", changed(req[:], 12, 0)),
		v("request", "request_kind_6", "kind 6 does not exist", changed(req[:], 12, 6)),
		v("request", "request_flags", "flags must be 0", changed(req[:], 14, 1)),
		v("request", "request_reserved_20", "the field at offset 20 must be 0", changed(req[:], 20, 1)),
		v("request", "request_reserved_60", "the field at offset 60 must be 0", changed(req[:], 63, 1)),
		v("request", "request_no_queries", "PREDICT has at least one query", changed(req[:], 16, 0)),
		v("request", "request_accuracy_with_queries", "ACCURACY has no queries", changed(accuracy[:], 16, 1)),
		v("request", "request_input_misaligned", "the offset of the input block is a multiple of 64", changed(req[:], 24, 8)),
		v("request", "request_output_misaligned", "the offset of the output block is a multiple of 64", changed(req[:], 40, 1)),
		v("response", "response_kind_grant", "a response names the kind of its batch, never GRANT", changed(res[:], 12, 4)),
		v("response", "response_kind_0", "kind 0 does not exist", changed(res[:], 12, 0)),
		v("response", "response_status_6", "status 6 does not exist", changed(res[:], 14, 6)),
		v("response", "response_flag_2", "bit 2 of the flags has no meaning", changed(res[:], 20, 4)),
		v("response", "response_need_without_need_more", "need is 0 unless the status is NEED_MORE", changed(res[:], 40, 1)),
		v("response", "response_need_more_without_need", "NEED_MORE says how much is needed", changed(res[:], 14, 3)),
		v("response", "response_reserved_56", "the field at offset 56 must be 0", changed(res[:], 56, 1)),
	}
}

func refusedBlocks() []*vector {
	var vs []*vector
	refuse := func(name, why string, sections []api.TensorSpec, count int, b []byte) {
		vs = append(vs, &vector{Name: name, Kind: "block", Why: why, Sections: jsonTensors(sections), Count: &count, Hex: hex.EncodeToString(b)})
	}
	write := func(sections []api.TensorSpec, values columns) []byte {
		sc := NewSchema(sections)
		b := make([]byte, sc.Size(values))
		if _, err := sc.Write(b, values); err != nil {
			panic(err)
		}
		return b
	}
	u64 := func(n uint64) []byte { return binary.LittleEndian.AppendUint64(nil, n) }

	fixed := specs("x int64[]")
	block := write(fixed, columns{plain(i64(1), i64(2))})
	refuse("block_no_table", "the block is shorter than its section table", fixed, 2, block[:63])
	refuse("block_empty", "an empty block has no section table", fixed, 2, nil)
	refuse("block_section_misaligned", "a section's offset is a multiple of 64", fixed, 2, append(changed(block, 0, u64(72)...), make([]byte, 8)...))
	refuse("block_section_in_table", "a section overlaps the section table", fixed, 2, changed(block, 0, u64(0)...))
	refuse("block_section_behind_end", "the section begins behind the block", fixed, 2, changed(block, 0, u64(128)...))
	refuse("block_section_too_long", "the section is longer than the block", fixed, 2, changed(block, 8, u64(24)...))
	refuse("block_section_wraps", "offset + length overflows 64 bits", fixed, 2, changed(block, 8, u64(math.MaxUint64-63)...))
	refuse("block_offset_huge", "the offset lies far behind the block", fixed, 2, changed(block, 0, u64(math.MaxUint64-63)...))
	refuse("block_fixed_too_few", "two queries of int64[] take 16 bytes, the section has 8", fixed, 2, changed(block, 8, u64(8)...))
	refuse("block_fixed_count", "three queries of int64[] take 24 bytes", fixed, 3, block)

	two := specs("x int64[]", "y int64[]")
	block = write(two, columns{plain(i64(1)), plain(i64(2))})
	refuse("block_sections_overlap", "both sections claim the same bytes, more than there are in all", two, 1, changed(block[:72], 16, u64(64)...))

	ragged := specs("x bytes[]")
	block = write(ragged, columns{plain([]byte("abc"), []byte("defgh"))}) // section at 64; entries at 64 and 80; data at 96 and 104
	refuse("ragged_no_entries", "the section is shorter than its entry table", ragged, 2, changed(block, 8, u64(31)...))
	refuse("ragged_count", "nine entries take more than the section has", ragged, 9, block)
	refuse("ragged_item_misaligned", "an item's offset is a multiple of 8", ragged, 2, changed(block, 64, u64(33)...))
	refuse("ragged_item_in_table", "an item overlaps the entry table", ragged, 2, changed(block, 64, u64(24)...))
	refuse("ragged_item_behind_end", "an item begins behind the section", ragged, 2, changed(block, 64, u64(48)...))
	refuse("ragged_item_too_long", "an item ends behind the section", ragged, 2, changed(block, 72, u64(14)...))
	refuse("ragged_item_wraps", "offset + length overflows 64 bits", ragged, 2, changed(block, 72, u64(math.MaxUint64)...))
	refuse("ragged_items_overlap", "the items claim more bytes in all than the section has", ragged, 2, changed(changed(block, 72, u64(13)...), 80, u64(32)...))

	matrix := specs("x float32[-1,3]")
	block = write(matrix, columns{{{Data: f32(1, 2, 3, 4, 5, 6), Dims: []int64{2, 3}}}}) // entry at 64, dimensions at 80, data at 96
	refuse("ragged_dimension_contradicts", "the second dimension is declared as 3", matrix, 1, changed(changed(block, 80, u64(3)...), 88, u64(2)...))
	refuse("ragged_dimension_negative", "a dimension is negative", matrix, 1, changed(block, 80, u64(math.MaxUint64)...))
	refuse("ragged_product_differs", "3 × 3 float32 take 36 bytes, the item has 24", matrix, 1, changed(block, 80, u64(3)...))
	refuse("ragged_product_overflows", "the product of the dimensions overflows 64 bits", matrix, 1, changed(block, 80, u64(1<<62+2)...))

	strs := specs("x bytes[2]")
	block = write(strs, columns{{{Data: elements("ab", "c"), Dims: []int64{2}}}}) // entry 64, dimension 80, data 88: u32 2 "ab" u32 1 "c"
	refuse("elements_too_long", "an element is longer than what is left", strs, 1, changed(block, 94, 2))
	refuse("elements_length_huge", "an element's length is 2^32-1", strs, 1, changed(block, 88, 0xff, 0xff, 0xff, 0xff))
	refuse("elements_leftover", "a byte follows the last element", strs, 1, changed(block, 94, 0))
	refuse("elements_too_few", "the data end before the second element", strs, 1, changed(block, 88, 7))
	return vs
}
