package timelock

import (
	"bytes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/crypto/chacha20poly1305"

	"github.com/fairpact/fairpact/internal/rules/drand"
)

const (
	armorBegin = "-----BEGIN AGE ENCRYPTED FILE-----\n"
	armorEnd   = "-----END AGE ENCRYPTED FILE-----\n"
	lineSize   = 64 // base64 characters in a line of the armor and of a stanza's body

	nonceSize = 16
	tagSize   = chacha20poly1305.Overhead
	chunkSize = 64 << 10 // bytes of plaintext in a chunk of the payload
)

// unpadded is the base64 of an age header.
var unpadded = base64.RawStdEncoding

// file is an age file with one tlock stanza.
type file struct {
	round   int64
	chain   string
	body    []byte // of the stanza, wrappedSize bytes
	mac     []byte // sha256.Size bytes
	payload []byte // nonce and encrypted chunks
}

// header returns the header up to and including the three hyphens before the MAC, which is the part
// that the MAC covers.
func (f file) header() []byte {
	b := fmt.Appendf(nil, "age-encryption.org/v1\n-> tlock %d %s\n", f.round, f.chain)
	return append(append(b, lines(unpadded.EncodeToString(f.body))...), "---"...)
}

// whole returns the header with its MAC. The payload follows it.
func (f file) whole() []byte {
	return append(f.header(), " "+unpadded.EncodeToString(f.mac)+"\n"...)
}

// lines breaks base64 into lines of lineSize, each with a line feed.
func lines(text string) []byte {
	b := make([]byte, 0, len(text)+len(text)/lineSize+1)
	for line := range slices.Chunk([]byte(text), lineSize) {
		b = append(append(b, line...), '\n')
	}
	return b
}

// armor returns the only armored text that unarmor reads to these bytes.
func armor(raw []byte) []byte {
	b := append(make([]byte, 0, len(raw)*11/8), armorBegin...)
	b = append(b, lines(base64.StdEncoding.EncodeToString(raw))...)
	return append(b, armorEnd...)
}

var errArmor = errors.New("it is not an age file in canonical armor: the two lines -----BEGIN … and -----END AGE ENCRYPTED FILE-----, between them base64 in lines of 64 characters, a line feed after each line, nothing else")

func unarmor(seal string) ([]byte, error) {
	text, begins := strings.CutPrefix(seal, armorBegin)
	text, ends := strings.CutSuffix(text, armorEnd)
	if !begins || !ends {
		return nil, errArmor
	}
	raw, err := base64.StdEncoding.DecodeString(text) // ignores line ends, and padding bits that are not 0
	if err != nil || string(armor(raw)) != seal {
		return nil, errArmor
	}
	return raw, nil
}

var errHeader = errors.New("its age header is not exactly one stanza `-> tlock ROUND CHAINHASH` with a body of 128 bytes, and a MAC of 32 bytes")

// parseFile reads the bytes of an age file. It verifies neither the MAC nor the payload.
func parseFile(raw []byte) (f file, err error) {
	var line [6]string
	rest := raw
	for i := range line {
		at := bytes.IndexByte(rest[:min(len(rest), 128)], '\n') // the longest line is the stanza's, with 91 bytes
		if at < 0 {
			return file{}, errHeader
		}
		line[i], rest = string(rest[:at]), rest[at+1:]
	}
	arguments := strings.Split(line[1], " ")
	if len(arguments) != 4 {
		return file{}, errHeader
	}
	f.chain, f.payload = arguments[3], rest
	f.round, err = strconv.ParseInt(arguments[2], 10, 64)
	if err != nil || f.round < 1 || f.round > drand.MaxRound {
		return file{}, errHeader
	}
	f.body, err = unpadded.DecodeString(line[2] + line[3] + line[4])
	if err != nil || len(f.body) != wrappedSize {
		return file{}, errHeader
	}
	f.mac, err = unpadded.DecodeString(strings.TrimPrefix(line[5], "--- "))
	// Only the bytes that a writer of these values writes are accepted: the comparison refuses leading
	// zeros, other line lengths, padding bits that are not 0 and another version.
	if err != nil || len(f.mac) != sha256.Size || !bytes.Equal(f.whole(), raw[:len(raw)-len(rest)]) {
		return file{}, errHeader
	}
	// Only an empty payload has an empty last chunk.
	chunks := len(f.payload) - nonceSize
	if last := chunks % (chunkSize + tagSize); chunks < tagSize || last != 0 && (last < tagSize || last == tagSize && chunks > tagSize) {
		return file{}, errors.New("its age payload is cut: it has no nonce of 16 bytes, or its last chunk has no content")
	}
	return f, nil
}

// headerMAC authenticates the header under the file key.
func headerMAC(fileKey [keySize]byte, header []byte) []byte {
	mac := hmac.New(sha256.New, derived(fileKey, nil, "header"))
	mac.Write(header)
	return mac.Sum(nil)
}

func derived(fileKey [keySize]byte, salt []byte, label string) []byte {
	key, err := hkdf.Key(sha256.New, fileKey[:], salt, label, chacha20poly1305.KeySize)
	if err != nil {
		panic(err) // only for a key of more than 255 hashes
	}
	return key
}

// stream returns the cipher of the payload's chunks.
func stream(fileKey [keySize]byte, nonce []byte) cipher.AEAD {
	aead, err := chacha20poly1305.New(derived(fileKey, nonce, "payload"))
	if err != nil {
		panic(err) // only for a key of another size
	}
	return aead
}

// chunkNonce returns 11 bytes of counter, and one byte that is 1 for the last chunk.
func chunkNonce(counter uint64, last bool) []byte {
	nonce := make([]byte, chacha20poly1305.NonceSize)
	binary.BigEndian.PutUint64(nonce[3:11], counter)
	if last {
		nonce[11] = 1
	}
	return nonce
}

func encryptPayload(fileKey [keySize]byte, nonce, plaintext []byte) []byte {
	aead := stream(fileKey, nonce)
	payload := append(make([]byte, 0, nonceSize+len(plaintext)+(len(plaintext)/chunkSize+1)*tagSize), nonce...)
	for counter := uint64(0); ; counter++ {
		size := min(len(plaintext), chunkSize)
		last := size == len(plaintext)
		payload = aead.Seal(payload, chunkNonce(counter, last), plaintext[:size], nil)
		if plaintext = plaintext[size:]; last {
			return payload
		}
	}
}

// decryptPayload returns an error if any byte of the payload was changed, or a chunk is missing.
func decryptPayload(fileKey [keySize]byte, payload []byte) (plaintext []byte, err error) {
	aead, chunks := stream(fileKey, payload[:nonceSize]), payload[nonceSize:]
	plaintext = make([]byte, 0, len(chunks))
	for counter := uint64(0); ; counter++ {
		size := min(len(chunks), chunkSize+tagSize)
		last := size == len(chunks)
		if plaintext, err = aead.Open(plaintext, chunkNonce(counter, last), chunks[:size], nil); err != nil {
			return nil, errors.New("its payload is not encrypted under its file key, or was changed")
		}
		if chunks = chunks[size:]; last {
			return plaintext, nil
		}
	}
}
