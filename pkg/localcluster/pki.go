/*
Copyright The Ringmaster Authors.

Licensed under the Apache License, Version 2.0 (the "License");
you may not use this file except in compliance with the License.
You may obtain a copy of the License at

    http://www.apache.org/licenses/LICENSE-2.0

Unless required by applicable law or agreed to in writing, software
distributed under the License is distributed on an "AS IS" BASIS,
WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
See the License for the specific language governing permissions and
limitations under the License.
*/

package localcluster

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"

	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"k8s.io/client-go/tools/clientcmd"
)

// validity is how long the certificates of a cluster are valid.
const validity = 365 * 24 * time.Hour

// pki holds the keys of one cluster: the authority of all certificates, and the files
// that the components read.
type pki struct {
	authority *x509.Certificate
	key       *ecdsa.PrivateKey
	caPEM     []byte

	caFile                        string
	servingCertFile               string
	servingKeyFile                string
	serviceAccountKeyFile         string
	serviceAccountVerificationKey string
}

// newPKI makes the authority, the serving certificate and the key that signs the tokens
// of service accounts, and writes them to dir. All components share one serving
// certificate because they listen on the same address.
func newPKI(dir string) (*pki, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template, err := certificateTemplate(pkix.Name{CommonName: "localcluster-ca"})
	if err != nil {
		return nil, err
	}
	template.IsCA, template.BasicConstraintsValid = true, true
	template.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, err
	}
	authority, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	p := &pki{
		authority:                     authority,
		key:                           key,
		caPEM:                         pemOf("CERTIFICATE", der),
		caFile:                        filepath.Join(dir, "ca.crt"),
		servingCertFile:               filepath.Join(dir, "serving.crt"),
		servingKeyFile:                filepath.Join(dir, "serving.key"),
		serviceAccountKeyFile:         filepath.Join(dir, "service-account.key"),
		serviceAccountVerificationKey: filepath.Join(dir, "service-account.pub"),
	}

	serving, err := certificateTemplate(pkix.Name{CommonName: "localcluster"})
	if err != nil {
		return nil, err
	}
	serving.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	serving.IPAddresses = []net.IP{net.ParseIP(host)}
	serving.DNSNames = []string{"localhost", "kubernetes.default.svc"}
	servingCert, servingKey, err := p.sign(serving)
	if err != nil {
		return nil, err
	}

	tokenKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	tokenKeyPEM, err := keyPEM(tokenKey)
	if err != nil {
		return nil, err
	}
	tokenPublic, err := x509.MarshalPKIXPublicKey(tokenKey.Public())
	if err != nil {
		return nil, err
	}
	for file, content := range map[string][]byte{
		p.caFile:                        p.caPEM,
		p.servingCertFile:               servingCert,
		p.servingKeyFile:                servingKey,
		p.serviceAccountKeyFile:         tokenKeyPEM,
		p.serviceAccountVerificationKey: pemOf("PUBLIC KEY", tokenPublic),
	} {
		if err := os.WriteFile(file, content, 0o600); err != nil {
			return nil, err
		}
	}
	return p, nil
}

// writeKubeconfig writes a kubeconfig for the API server at that URL, which
// authenticates its bearer as that user in those groups.
func (p *pki) writeKubeconfig(file, server, user string, groups ...string) error {
	template, err := certificateTemplate(pkix.Name{CommonName: user, Organization: groups})
	if err != nil {
		return err
	}
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	cert, key, err := p.sign(template)
	if err != nil {
		return fmt.Errorf("kubeconfig of %s: %w", user, err)
	}
	config := clientcmdapi.NewConfig()
	config.Clusters["local"] = &clientcmdapi.Cluster{Server: server, CertificateAuthorityData: p.caPEM}
	config.AuthInfos[user] = &clientcmdapi.AuthInfo{ClientCertificateData: cert, ClientKeyData: key}
	config.Contexts["local"] = &clientcmdapi.Context{Cluster: "local", AuthInfo: user}
	config.CurrentContext = "local"
	return clientcmd.WriteToFile(*config, file)
}

// sign completes the template with a new key, and returns both.
func (p *pki) sign(template *x509.Certificate) (cert, key []byte, err error) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	template.KeyUsage = x509.KeyUsageDigitalSignature
	der, err := x509.CreateCertificate(rand.Reader, template, p.authority, private.Public(), p.key)
	if err != nil {
		return nil, nil, err
	}
	if key, err = keyPEM(private); err != nil {
		return nil, nil, err
	}
	return pemOf("CERTIFICATE", der), key, nil
}

func certificateTemplate(subject pkix.Name) (*x509.Certificate, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, err
	}
	// Valid from an hour ago, in case the clock is set back while the cluster runs.
	begin := time.Now().Add(-time.Hour)
	return &x509.Certificate{SerialNumber: serial, Subject: subject, NotBefore: begin, NotAfter: begin.Add(validity)}, nil
}

func keyPEM(key *ecdsa.PrivateKey) ([]byte, error) {
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, err
	}
	return pemOf("EC PRIVATE KEY", der), nil
}

func pemOf(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}
