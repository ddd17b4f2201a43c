// Package access decides who may do what in the lock service: it knows tokens and client
// certificates, protects browsers, and writes the audit log.
//
// A policy is one file; docs/serve-access.md describes it. Nothing is allowed that it does not
// allow.
package access
