// Command image makes the container image of the Dockerfile without a daemon and without a registry: its last stage
// copies files into an empty image, and that needs neither.
//
//	bin/lockproxy, LICENSE, CA certificates ──layer──┐
//	Dockerfile, from FROM scratch on ──────config────┴──► an archive for docker load, podman load, skopeo
//
// The same inputs give the same bytes. It fails if the image is larger than -limit.
package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/moby/buildkit/frontend/dockerfile/instructions"
	"github.com/moby/buildkit/frontend/dockerfile/parser"
	"github.com/moby/buildkit/frontend/dockerfile/shell"
)

func main() {
	var b builder
	flag.StringVar(&b.root, "root", "../..", "the `directory` of the Dockerfile")
	flag.StringVar(&b.binary, "binary", "../../bin/lockproxy", "the static `program`")
	flag.StringVar(&b.authorities, "authorities", "/etc/ssl/certs/ca-certificates.crt", "certificate authorities, a PEM `file`")
	flag.StringVar(&b.arch, "arch", runtime.GOARCH, "the `architecture` of the program")
	flag.StringVar(&b.tag, "tag", "lockproxy:dev", "the image's `name:tag`")
	flag.Int64Var(&b.limit, "limit", 12_000_000, "the most `bytes` that are transferred for the image")
	out := flag.String("o", "../../bin/lockproxy-image.tar", "the `archive` to write")
	flag.Parse()
	if err := b.write(*out, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "image:", err)
		os.Exit(1)
	}
}

type builder struct {
	root, binary, authorities, arch, tag string
	limit                                int64
}

// write makes the image and tells its size.
func (b builder) write(path string, out io.Writer) error {
	image, err := b.image()
	if err != nil {
		return err
	}
	size, err := transferred(image)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "%s: %.1f MB are transferred\n", b.tag, float64(size)/1e6)
	if size > b.limit {
		return fmt.Errorf("%d bytes, more than %d", size, b.limit)
	}
	tag, err := name.NewTag(b.tag)
	if err != nil {
		return err
	}
	return tarball.WriteToFile(path, tag, image)
}

// transferred is the size of the compressed layers, which a registry sends.
func transferred(image v1.Image) (total int64, err error) {
	layers, err := image.Layers()
	for _, layer := range layers {
		size, sizeErr := layer.Size()
		total, err = total+size, errors.Join(err, sizeErr)
	}
	return total, err
}

func (b builder) image() (v1.Image, error) {
	config, copied, err := b.lastStage()
	if err != nil {
		return nil, err
	}
	files, err := b.archive(copied)
	if err != nil {
		return nil, err
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(files)), nil },
		tarball.WithCompressionLevel(gzip.BestCompression))
	if err != nil {
		return nil, err
	}
	image, err := mutate.AppendLayers(empty.Image, layer)
	if err != nil {
		return nil, err
	}
	file, err := image.ConfigFile()
	if err != nil {
		return nil, err
	}
	file.Created, file.History = v1.Time{Time: time.Unix(0, 0).UTC()}, nil
	file.Architecture, file.OS, file.Config = b.arch, "linux", config
	return mutate.ConfigFile(image, file)
}

// lastStage reads what the Dockerfile says behind FROM scratch: the configuration, and the files that are copied, by
// their places in the image.
func (b builder) lastStage() (config v1.Config, copied []string, err error) {
	text, err := os.Open(b.root + "/Dockerfile")
	if err != nil {
		return config, nil, err
	}
	defer text.Close()
	parsed, err := parser.Parse(text)
	if err != nil {
		return config, nil, err
	}
	stages, _, err := instructions.Parse(parsed.AST, nil)
	if err != nil {
		return config, nil, err
	}
	last := stages[len(stages)-1]
	if last.BaseName != "scratch" {
		return config, nil, fmt.Errorf("the last stage begins from %s, not from scratch", last.BaseName)
	}
	words := shell.NewLex('\\')
	for _, command := range last.Commands {
		if quoted, ok := command.(instructions.SupportsSingleWordExpansion); ok {
			err := quoted.Expand(func(word string) (string, error) {
				plain, _, err := words.ProcessWord(word, shell.EnvsFromSlice(config.Env))
				return plain, err
			})
			if err != nil {
				return config, nil, err
			}
		}
		switch c := command.(type) {
		case *instructions.CopyCommand:
			copied = append(copied, c.DestPath)
		case *instructions.UserCommand:
			config.User = c.User
		case *instructions.EnvCommand:
			for _, pair := range c.Env {
				config.Env = append(config.Env, pair.String())
			}
		case *instructions.ExposeCommand:
			config.ExposedPorts = map[string]struct{}{}
			for _, port := range c.Ports {
				config.ExposedPorts[port+"/tcp"] = struct{}{}
			}
		case *instructions.HealthCheckCommand:
			if err := convert(c.Health, &config.Healthcheck); err != nil {
				return config, nil, err
			}
		case *instructions.EntrypointCommand:
			config.Entrypoint = c.CmdLine
		case *instructions.LabelCommand:
			config.Labels = map[string]string{}
			for _, pair := range c.Labels {
				config.Labels[pair.Key] = pair.Value
			}
		default:
			return config, nil, fmt.Errorf("the last stage has %s, which this program does not know", command.Name())
		}
	}
	return config, copied, nil
}

// convert copies a structure into another one of the same fields.
func convert(from, to any) error {
	text, err := json.Marshal(from)
	if err != nil {
		return err
	}
	return json.Unmarshal(text, to)
}

// archive is the layer: the copied files with their directories, all of root, none newer than the others.
func (b builder) archive(copied []string) ([]byte, error) {
	var buffer bytes.Buffer
	w := tar.NewWriter(&buffer)
	add := func(h *tar.Header, content []byte) error {
		h.ModTime, h.Size, h.Format = time.Unix(0, 0), int64(len(content)), tar.FormatPAX
		if err := w.WriteHeader(h); err != nil {
			return err
		}
		_, err := w.Write(content)
		return err
	}
	seen := map[string]bool{}
	for _, path := range copied {
		source, mode := "", int64(0o644)
		switch path {
		case "/lockproxy":
			source, mode = b.binary, 0o755
		case "/LICENSE":
			source = b.root + "/LICENSE"
		case "/etc/ssl/certs/ca-certificates.crt":
			source = b.authorities
		default:
			return nil, fmt.Errorf("the source of %s is not known", path)
		}
		content, err := os.ReadFile(source)
		if err != nil {
			return nil, err
		}
		rest := strings.TrimPrefix(path, "/")
		for i, c := range rest {
			if dir := rest[:i]; c == '/' && !seen[dir] {
				seen[dir] = true
				if err := add(&tar.Header{Typeflag: tar.TypeDir, Name: dir + "/", Mode: 0o755}, nil); err != nil {
					return nil, err
				}
			}
		}
		if err := add(&tar.Header{Typeflag: tar.TypeReg, Name: rest, Mode: mode}, content); err != nil {
			return nil, err
		}
	}
	err := w.Close()
	return buffer.Bytes(), err
}
