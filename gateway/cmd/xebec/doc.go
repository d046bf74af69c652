// Command xebec is the gateway, and the tool that drives one.
//
//	xebec serve              run a gateway
//	xebec init NAME          make a model directory to begin with
//	xebec dev DIR            serve a model directory while it is written
//	xebec try DIR            run a model directory once, without a gateway
//	xebec deploy DIR|FILE    declare a model directory, or a file of a library, and wait until it is served
//	xebec apply -f FILE      declare models, functions and traffic rules
//	xebec diff -f FILE       what apply would change
//	xebec wait KIND NAME     wait until it is ready
//	xebec traffic MODEL      divide a model's queries between its versions
//	xebec promote, rollback  make a version serve, or an older one again
//	xebec history, export    who changed what and when; everything that is declared
//	xebec learn              export, import, reset and history of what a function has learned
//	xebec invoke FUNCTION    call a function
//	xebec feedback FUNCTION  say how good its predictions were
//	xebec scale MODEL        change the bounds of a model's replicas
//	xebec profile MODEL      where a replica spends its time
//	xebec plan, replay, top  plan replicas, send an inference log again, watch a gateway
//	xebec get, describe, logs, delete, version, completion
//
// # What it promises
//
// To people: an error says what was wrong and what to do about it. A command that takes more than a second says what it
// is waiting for. Such text goes to stderr; stdout has the answer and nothing else.
//
// To scripts: -o json and -o yaml wherever there is something to read. The exit status is 0 for success, 1 for failure
// and 2 for a command line that was not understood. `diff` says with 1 that something differs, and with 3 that it has
// failed. `get` prints declarations, in the form that apply reads, with -o json also their status; `describe` explains it.
//
// # What it never does
//
// Every command except serve, dev and try speaks HTTP to a running gateway and touches nothing else: neither the gateway's
// files nor its workers. `deploy FILE` makes a model directory where its caller says. The gateways of dev and try have no store and no admin
// port, and end with the command. A token is sent over TLS or to this machine only. It is read from a file that no other user can read, never
// from the command line.
//
// # Where to read next
//
// root.go has what the commands share, client.go the HTTP side, identify.go the credentials. Each command has its own
// file: flags, wiring and output. What plan, replay and top compute is in packages gateway/forecast, gateway/replay and
// gateway/top; what serve runs is package gateway/server.
package main
