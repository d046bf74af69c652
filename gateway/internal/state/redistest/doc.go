// Package redistest runs real Redis servers for tests. A test can kill, restart and pause its server, and save and restore its data.
//
// [Start] gives a test a server of its own on a port of 127.0.0.1, with a folder of its own. Both are removed when the test ends; the server is
// killed even if the test's process is. Nothing is mocked, so the results hold for the installed redis-server. If none is
// installed, the test fails and says how to install it. The package waits on conditions, never for a fixed time.
package redistest
