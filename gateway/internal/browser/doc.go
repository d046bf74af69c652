// Package browser judges requests by what a browser says of the page that sends them. The two ports use it to refuse
// requests of pages that do not belong to the gateway's operator.
//
// A page can make a browser send requests to a port on this machine in two ways. It can name the port's address: the
// browser then sends Origin, or Sec-Fetch-Site, and says that the page is another site's. Or it can rebind its own name
// to that address: then the request looks like one of the page's own site, and only Host tells. A page can set none of
// these headers, and programs other than browsers send neither Origin nor Sec-Fetch-Site.
//
// The package reads strings and does no I/O.
package browser
