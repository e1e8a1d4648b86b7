// Package testpackages installs the packages of a release into an empty root directory and uses what is there: `make packages-test`. Its tests need root,
// dpkg and rpm, and have the build tag packages, so that no other run skips them.
package testpackages
