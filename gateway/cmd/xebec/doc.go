// Command xebec is the gateway and the tool to drive it.
//
//	xebec serve              run a gateway
//	xebec deploy DIR         declare a model directory, and wait until it is served
//	xebec apply -f FILE      declare models, functions and traffic rules
//	xebec traffic MODEL      divide a model's queries between its versions
//	xebec promote, rollback  make a version serve, or an older one again
//	xebec history, export    who changed what when; everything that is declared
//	xebec invoke FUNCTION    call a function
//	xebec feedback FUNCTION  say how good its predictions were
//	xebec scale MODEL        change the bounds of a model's replicas
//	xebec plan               say how many replicas a model needs
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
// They never start a gateway by themselves. A token is sent over TLS, or to this machine, and nowhere else; it is read from a file that
// nobody else can read, never from the command line.
//
// # Where to read next
//
// root.go has the commands' common ground, client.go the HTTP side, identify.go what proves who asks; each command has its file. What serve runs is package
// gateway/server.
package main
