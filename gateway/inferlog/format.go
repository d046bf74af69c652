package inferlog

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
)

// Limits of what is written, which the reader enforces.
const (
	// MaxRecordBytes bounds one encoded record together with its schema: an image of 600 KB is logged, a video is not.
	MaxRecordBytes = 1 << 20 //xebec:limit a query in the inference log; larger ones are not logged
	// maxBlockBytes bounds a frame's uncompressed bytes. A record larger than Config.BlockBytes has its own frame.
	maxBlockBytes = MaxRecordBytes
	// maxStoredBytes bounds a frame's stored bytes. A block that compression would enlarge is stored uncompressed;
	// format 1 stored what zstd made of it.
	maxStoredBytes = maxBlockBytes + maxBlockBytes/64 + 1024 // maxStored(maxBlockBytes)

	maxTensors    = 64
	maxModels     = 64
	maxNameBytes  = 256 // of a tensor's name
	maxFrameTypes = 1 << 14
)

const (
	// formatVersion is the version that is written; older ones are also read. In format 1 all frames are zstd.
	formatVersion    = 3
	fileHeaderBytes  = 28
	frameHeaderBytes = 24

	frameZstd   = 1
	frameS2     = 2
	frameStored = 3 // uncompressed

	entrySchema   = 1
	entryQuery    = 2
	entryFeedback = 3

	flagDefault   = 1
	flagOutputs   = 2
	flagRequestID = 4 // since format 3
)

// maxStored is an upper bound of the compressed size of rawBytes.
func maxStored(rawBytes int) int { return rawBytes + rawBytes/64 + 1024 }

var (
	fileMagic  = [8]byte{'x', 'e', 'b', 'e', 'c', 'l', 'o', 'g'}
	frameMagic = [4]byte{'X', 'L', 'F', '1'}
	castagnoli = crc32.MakeTable(crc32.Castagnoli)
)

func appendFileHeader(dst []byte, begunMicros int64) []byte {
	start := len(dst)
	dst = append(dst, fileMagic[:]...)
	dst = binary.LittleEndian.AppendUint32(dst, formatVersion)
	dst = binary.LittleEndian.AppendUint32(dst, 0)
	dst = binary.LittleEndian.AppendUint64(dst, uint64(begunMicros))
	return binary.LittleEndian.AppendUint32(dst, crc32.Checksum(dst[start:], castagnoli))
}

// checkFileHeader returns why a file that begins with head cannot be read, or nil if it can.
func checkFileHeader(head []byte) error {
	switch {
	case len(head) < fileHeaderBytes:
		return fmt.Errorf("the file has %d bytes, expected a header of %d", len(head), fileHeaderBytes)
	case [8]byte(head) != fileMagic:
		return fmt.Errorf("the file is not an inference log: expected one that `xebec serve --inference-log` wrote")
	case binary.LittleEndian.Uint32(head[8:])-1 >= formatVersion:
		return fmt.Errorf("the file has format %d, this program reads formats 1 to %d: use the version of xebec that wrote it, or a newer one",
			binary.LittleEndian.Uint32(head[8:]), formatVersion)
	case crc32.Checksum(head[:fileHeaderBytes-4], castagnoli) != binary.LittleEndian.Uint32(head[fileHeaderBytes-4:]):
		return fmt.Errorf("the file's header is damaged")
	}
	return nil
}

// frameHeader precedes a frame's stored bytes.
type frameHeader struct {
	kind                  byte
	rawBytes, storedBytes int
	crc                   uint32
}

// putFrameHeader writes the header for stored into dst, which has frameHeaderBytes.
func putFrameHeader(dst []byte, kind byte, stored []byte, rawBytes int) {
	copy(dst, frameMagic[:])
	copy(dst[4:8], []byte{kind, 0, 0, 0})
	binary.LittleEndian.PutUint32(dst[8:], uint32(rawBytes))
	binary.LittleEndian.PutUint32(dst[12:], uint32(len(stored)))
	binary.LittleEndian.PutUint32(dst[16:], crc32.Checksum(stored, castagnoli))
	binary.LittleEndian.PutUint32(dst[20:], crc32.Checksum(dst[:20], castagnoli))
}

// parseFrameHeader parses a header of frameHeaderBytes. It returns false if there is none or it is damaged.
func parseFrameHeader(head []byte) (h frameHeader, ok bool) {
	if [4]byte(head) != frameMagic || crc32.Checksum(head[:20], castagnoli) != binary.LittleEndian.Uint32(head[20:]) {
		return h, false
	}
	raw, stored := binary.LittleEndian.Uint32(head[8:]), binary.LittleEndian.Uint32(head[12:])
	if head[4] < frameZstd || head[4] > frameStored || raw > maxBlockBytes || stored > maxStoredBytes {
		return h, false
	}
	return frameHeader{kind: head[4], rawBytes: int(raw), storedBytes: int(stored), crc: binary.LittleEndian.Uint32(head[16:])}, true
}
