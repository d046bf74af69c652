// Command xebec is the gateway and the tool to drive it.
//
//	xebec serve              run a gateway
//	xebec deploy DIR         declare a model directory, and wait until it is served
//	xebec apply -f FILE      declare models and functions
//	xebec invoke FUNCTION    call a function
//	xebec feedback FUNCTION  say how good its predictions were
//	xebec get, describe, logs, delete, version, completion
//
// # What it promises
//
// To people: an error says what was wrong and what to do, and whatever takes more than a second says what it is waiting for.
// Such words go to stderr; stdout has the answer and nothing else.
//
// To scripts: -o json and -o yaml wherever there is something to read; exit status 0 for success, 1 for failure, 2 for a
// command that was not understood. `get` prints declarations, in the form that apply takes; `describe` prints how things stand.
//
// # What it never does
//
// All commands but serve speak HTTP to a gateway that runs, and touch nothing else: no state of the gateway's own, no worker.
// They never start a gateway by themselves.
//
// # Where to read next
//
// root.go has the commands' common ground, client.go the HTTP side; each command has its file. What serve runs is package
// gateway/server.
package main
