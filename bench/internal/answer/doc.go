// Package answer copies one HTTP answer of a server, so that another server can give the same answer. The floor answers exactly the bytes
// that Xebec answered, so that a comparison measures only the path to the answer.
//
// It does not interpret the body. Fields that every server sets itself (Date, Content-Length, Connection) are not copied.
package answer
