//go:build tools

// The program that tests build: an S3 server with an Iceberg REST catalog.
package tools

import _ "github.com/seaweedfs/seaweedfs/weed"
