package process

import (
	"io"

	"golang.org/x/sys/unix"
)

// The reaper's end of the socket is read and written by blocking calls: its only reader is the thread that forks, which
// must not change, and its writers hold the reaper's lock.

// receive reads one request and its descriptors, which are close-on-exec. The caller closes them. io.EOF means that the
// gateway is gone.
func (r *reaper) receive() (request, []int, error) {
	var header [frameHeaderBytes]byte
	fds, err := receiveHeader(header[:])
	if err != nil {
		closeAll(fds)
		return request{}, nil, err
	}
	n, err := frameLen(header)
	if err != nil {
		closeAll(fds)
		return request{}, nil, err
	}
	body := make([]byte, n)
	if _, err := io.ReadFull(blockingReader{}, body); err != nil {
		closeAll(fds)
		return request{}, nil, err
	}
	q, err := decodeRequest(body)
	if err != nil {
		closeAll(fds)
	}
	return q, fds, err
}

func receiveHeader(header []byte) (fds []int, err error) {
	oob := make([]byte, unix.CmsgSpace(maxFrameFDs*4))
	for got := 0; got < len(header); {
		n, oobn, _, _, err := unix.Recvmsg(reaperFD, header[got:], oob, unix.MSG_CMSG_CLOEXEC)
		switch {
		case err == unix.EINTR:
			continue
		case err != nil:
			return fds, err
		case n == 0:
			return fds, io.EOF
		}
		got += n
		messages, err := unix.ParseSocketControlMessage(oob[:oobn])
		if err != nil {
			return fds, err
		}
		for i := range messages {
			more, err := unix.ParseUnixRights(&messages[i])
			if err != nil {
				return fds, err
			}
			fds = append(fds, more...)
		}
	}
	return fds, nil
}

type blockingReader struct{}

func (blockingReader) Read(p []byte) (int, error) {
	for {
		n, err := unix.Read(reaperFD, p)
		switch {
		case err == unix.EINTR:
			continue
		case err != nil:
			return 0, err
		case n == 0:
			return 0, io.EOF
		}
		return n, nil
	}
}

// answer sends a reply. The reader notices if the gateway is gone, not answer. A gateway that is stopped blocks the
// reaper once the socket is full, until it continues or ends: there are no other requests to the reaper then.
func (r *reaper) answer(p reply) { _ = r.send(p) }

func (r *reaper) send(p reply) error {
	frame, err := appendFrame(nil, p)
	if err != nil {
		return err
	}
	for len(frame) > 0 {
		n, err := unix.SendmsgN(reaperFD, frame, nil, nil, unix.MSG_NOSIGNAL)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return err
		}
		frame = frame[n:]
	}
	return nil
}

func closeAll(fds []int) {
	for _, fd := range fds {
		_ = unix.Close(fd)
	}
}
