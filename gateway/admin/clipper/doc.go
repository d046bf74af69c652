// Package clipper is the management interface of Clipper over the admin API's Control: what clipper_admin sends below /admin/.
//
// It promises to clients of Clipper that its operations have their names, members, texts and answers: a change answers a sentence, a
// question JSON, and an error is a text with status 400 that says what was wrong. To the operator it promises that a change is an
// ordinary one: it is judged, stored, audited and in the history as if it had been declared, and a concurrent change is not undone.
//
// An application is a function: its default output is the function's default, its links are the function's models. A model that is
// added is a version whose replicas run from an image; its outputs are strings, as all of Clipper's are. A container is a replica.
//
// It never reads a file, starts anything or keeps a state. It knows no HTTP: package admin has the routes, and decides who may call.
//
// operations.go has the operations that change, questions.go those that ask, request.go reads bodies.
package clipper
