// Package browser tests the web console of the lock service in a real browser, and makes its
// pictures.
package browser
