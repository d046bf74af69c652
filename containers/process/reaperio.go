package process

import (
	"fmt"
	"io"

	"golang.org/x/sys/unix"
)

// The reaper's end of the socket is read and written by blocking calls: its only reader is the thread that forks, which
// must not change, and its writers hold the reaper's lock.

// receive reads one request and its descriptors, which are close-on-exec. The caller closes them. io.EOF means that the
// gateway is gone.
func (r *reaper) receive() (request, []int, error) {
	body, with, err := receiveFrame(reaperFD)
	fds := with.fds
	if err != nil {
		return request{}, nil, err
	}
	q, err := decodeRequest(body)
	if err != nil {
		closeAll(fds)
	}
	return q, fds, err
}

// ancillary is what came with a frame: descriptors, and the pid of the credentials if the socket passes them.
type ancillary struct {
	fds []int
	pid int
}

// receiveFrame reads a frame from a blocking socket. After an error the descriptors are closed.
func receiveFrame(fd int) (body []byte, with ancillary, err error) {
	defer func() {
		if err != nil {
			closeAll(with.fds)
		}
	}()
	var header [frameHeaderBytes]byte
	if with, err = receiveHeader(fd, header[:]); err != nil {
		return nil, with, err
	}
	n, err := frameLen(header)
	if err != nil {
		return nil, with, err
	}
	body = make([]byte, n)
	_, err = io.ReadFull(blockingReader(fd), body)
	return body, with, err
}

// receiveHeader reads the header of a frame, and what comes with it. After an error the caller closes the descriptors.
func receiveHeader(fd int, header []byte) (with ancillary, err error) {
	oob := make([]byte, unix.CmsgSpace(maxFrameFDs*4)+unix.CmsgSpace(unix.SizeofUcred))
	for got := 0; got < len(header); {
		n, oobn, flags, _, err := unix.Recvmsg(fd, header[got:], oob, unix.MSG_CMSG_CLOEXEC)
		switch {
		case err == unix.EINTR:
			continue
		case err != nil:
			return with, err
		case n == 0:
			return with, io.EOF
		}
		got += n
		if err := with.add(oob[:oobn]); err != nil {
			return with, err
		}
		if flags&unix.MSG_CTRUNC != 0 || len(with.fds) > maxFrameFDs {
			return with, fmt.Errorf("a frame came with more than %d descriptors, or this process is out of them", maxFrameFDs)
		}
	}
	return with, nil
}

// add adds what a control message has.
func (a *ancillary) add(oob []byte) error {
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return err
	}
	for i := range messages {
		switch messages[i].Header.Type {
		case unix.SCM_CREDENTIALS:
			cred, err := unix.ParseUnixCredentials(&messages[i])
			if err != nil {
				return err
			}
			a.pid = int(cred.Pid)
		case unix.SCM_RIGHTS:
			more, err := unix.ParseUnixRights(&messages[i])
			if err != nil {
				return err
			}
			a.fds = append(a.fds, more...)
		}
	}
	return nil
}

type blockingReader int

func (r blockingReader) Read(p []byte) (int, error) {
	for {
		n, err := unix.Read(int(r), p)
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

func (r *reaper) send(p reply) error { return sendFrame(reaperFD, p) }

func closeAll(fds []int) {
	for _, fd := range fds {
		_ = unix.Close(fd)
	}
}
