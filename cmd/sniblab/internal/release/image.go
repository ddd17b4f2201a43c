package main

import (
	"bytes"
	"context"
	"encoding/pem"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"golang.org/x/crypto/x509roots/fallback/bundle"
)

// image writes a container image with the command for each architecture of Linux, as an archive
// of an OCI layout. It contains the command and the root certificates of Mozilla, and nothing
// else. Its user is not root.
func (r *release) image(_ context.Context, date time.Time) error {
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, b := range r.built {
		if b.os != "linux" {
			continue
		}
		img, err := r.imageOf(b, date)
		if err != nil {
			return err
		}
		p := &v1.Platform{OS: b.os, Architecture: b.arch}
		if b.arch == "arm" {
			p.Variant = "v7" // as buildAll builds it
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: img, Descriptor: v1.Descriptor{Platform: p}})
	}
	// The layout has one entry, the index of all architectures, under the name of the version.
	name := map[string]string{"org.opencontainers.image.ref.name": strings.TrimPrefix(r.version, "v")}
	outer := mutate.AppendManifests(mutate.IndexMediaType(empty.Index, types.OCIImageIndex),
		mutate.IndexAddendum{Add: index, Descriptor: v1.Descriptor{Annotations: name}})
	dir := filepath.Join(r.tmp, "image")
	if _, err := layout.Write(dir, outer); err != nil {
		return err
	}
	return r.archiveFolder(dir, date)
}

// imageOf returns the image with b.
func (r *release) imageOf(b binary, date time.Time) (v1.Image, error) {
	program, err := os.ReadFile(b.file)
	if err != nil {
		return nil, err
	}
	files, err := tarOf([]entry{
		{"usr/bin/snib", 0o755, program},
		{"etc/ssl/certs/ca-certificates.crt", 0o644, rootCertificates()},
	}, date)
	if err != nil {
		return nil, err
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(files)), nil
	})
	if err != nil {
		return nil, err
	}
	base := mutate.MediaType(empty.Image, types.OCIManifestSchema1)
	img, err := mutate.AppendLayers(mutate.ConfigMediaType(base, types.OCIConfigJSON), layer)
	if err != nil {
		return nil, err
	}
	config, err := img.ConfigFile()
	if err != nil {
		return nil, err
	}
	return mutate.ConfigFile(img, &v1.ConfigFile{
		OS: b.os, Architecture: b.arch, Created: v1.Time{Time: date},
		Config: v1.Config{
			Entrypoint: []string{"/usr/bin/snib"},
			User:       "65532:65532",
			Labels: map[string]string{
				"org.opencontainers.image.title":    "snib",
				"org.opencontainers.image.version":  r.version,
				"org.opencontainers.image.source":   "https://" + r.root,
				"org.opencontainers.image.licenses": "Apache-2.0",
			},
		},
		RootFS: config.RootFS,
	})
}

// rootCertificates returns the root certificates that hold for all names, in the form of PEM.
func rootCertificates() []byte {
	var buf bytes.Buffer
	for root := range bundle.Roots() {
		if root.Constraint == nil {
			buf.Write(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate}))
		}
	}
	return buf.Bytes()
}

// archiveFolder writes the files of the OCI layout in dir to the image's archive.
func (r *release) archiveFolder(dir string, date time.Time) error {
	var entries []entry
	err := filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		in, err := filepath.Rel(dir, name)
		entries = append(entries, entry{filepath.ToSlash(in), 0o644, data})
		return err
	})
	if err != nil {
		return err
	}
	data, err := tarOf(entries, date)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(r.out, fmt.Sprintf("snib_%s_image.tar", strings.TrimPrefix(r.version, "v"))), data, 0o644)
}
