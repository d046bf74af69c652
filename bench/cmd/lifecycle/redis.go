package main

import (
	"fmt"
	"net"
	"time"
)

// ping checks that a Redis server answers.
func ping(addr string) error {
	const wait = time.Second
	conn, err := net.DialTimeout("tcp", addr, wait)
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(wait)); err != nil {
		return err
	}
	if _, err := conn.Write([]byte("PING\r\n")); err != nil {
		return err
	}
	answer := make([]byte, 64)
	n, err := conn.Read(answer)
	if err != nil {
		return err
	}
	if string(answer[:n]) != "+PONG\r\n" {
		return fmt.Errorf("it answers %q", answer[:n])
	}
	return nil
}
