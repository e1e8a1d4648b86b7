// Package testpackages installs the packages of a release, and the files of the container images,
// into an empty root directory and uses them: `make packages-test`. Its tests need root,
// mmdebstrap, rpm, buildah and npm, and have the build tag packages, so that no other run has to
// skip them.
package testpackages
