// Package docs is the page at /docs of both ports: the functions with a form to call each, and the routes of the HTTP API.
//
// The page is one document without parts: its style and its script stand in it, and its Content-Security-Policy permits these two, by
// their hashes, and requests to the port that it came from. So it asks no other host for anything, no other site can show it in a frame, and
// text of a model or a function cannot become a script. The list of routes is made from the description of the API when the program starts.
//
// The page sends only what a program could send: GET /docs/functions and GET /{function} for the list and the forms, POST
// /{function}/predict for a call, and on the admin port, where functions cannot be called, GET /v1/functions. What a page may send is for
// the port to judge.
//
// [Page] makes the page. The package opens no connection and keeps no state.
package docs
