// Package serve is a lock service over HTTP for any store whose leases outlive connections.
package serve
