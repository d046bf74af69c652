package grpc

import (
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// A message that the protobuf library decodes may take much more memory than it has bytes: an empty submessage has two bytes, and takes sixty. The
// budget knows of the bytes only, so what would grow beyond reason is refused before it is decoded.
const (
	decodedFactor = 8        //xebec:limit how many times its size on the wire a message of gRPC may take decoded; an int64 may have one byte there
	decodedFree   = 16 << 20 //xebec:limit what it may take beyond that
	messageBytes  = 64       // of a submessage, with the pointer to it
	textBytes     = 24       // of a string or bytes, without the text
	maxNesting    = 100
)

// checkWeight refuses a message of type d that would take far more memory decoded.
func checkWeight(b []byte, d protoreflect.MessageDescriptor) error {
	if n := weight(b, d, 0); n > decodedFactor*len(b)+decodedFree {
		return fmt.Errorf("a message of %d bytes that would take %d decoded: expected at most %d times its size; tensors have a form with raw bytes", len(b), n, decodedFactor)
	}
	return nil
}

// weight estimates how much memory a message takes decoded. What is malformed ends the estimate: the library refuses it.
func weight(b []byte, d protoreflect.MessageDescriptor, depth int) (total int) {
	for len(b) > 0 {
		num, kind, n := protowire.ConsumeTag(b)
		if n < 0 {
			return total
		}
		b = b[n:]
		size := protowire.ConsumeFieldValue(num, kind, b)
		if size < 0 {
			return total
		}
		value := b[:size]
		b = b[size:]
		fd := d.Fields().ByNumber(num)
		if fd == nil || kind != protowire.BytesType {
			total += 8 + size
			continue
		}
		value, _ = protowire.ConsumeBytes(value)
		switch fd.Kind() {
		case protoreflect.MessageKind:
			if total += messageBytes; depth < maxNesting {
				total += weight(value, fd.Message(), depth+1)
			} else {
				total += decodedFactor * decodedFactor * len(value)
			}
		case protoreflect.StringKind, protoreflect.BytesKind:
			total += textBytes + len(value)
		case protoreflect.DoubleKind, protoreflect.FloatKind, protoreflect.Fixed64Kind, protoreflect.Fixed32Kind, protoreflect.Sfixed64Kind, protoreflect.Sfixed32Kind:
			total += len(value)
		default: // packed varints
			total += len(value)
			for _, c := range value {
				if c < 0x80 { // the end of one
					total += 7
				}
			}
		}
	}
	return total
}
