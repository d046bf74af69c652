// Package hostile holds whole-program tests of what clients without credentials may try: they flood the ports with connections,
// bodies, trailers and silence, and smuggle requests. The gateway must go on, refuse them within its bounds, and end with status
// 0. The program is built once, without the race detector: the tests look at its memory. XEBEC_TEST_GATEWAY names another build.
//
// harness_test.go starts gateways. The other files are named after what they cause.
package hostile
