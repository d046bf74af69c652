// Package answer takes one HTTP answer of a server apart, so that another server can give the same: the floor answers exactly the
// bytes that Xebec answered, and a comparison of the two compares nothing but the way to them.
//
// It never interprets the body. Fields that every server writes by itself (Date, Content-Length, Connection) are left out of the
// copy.
package answer
