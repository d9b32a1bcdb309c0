package redis

import (
	"crypto/sha1"
	"encoding/hex"
)

// script is every change that there is, on the record of one key. Arguments: what to
// do, the token, how long the record is kept in ms, then the lease in ms or the result.
//
// A record is a state, the token of 8 bytes, and then: if it is held ("h", or "t" if it
// was taken over) or free ("f"), the end of the lease in 13 digits of ms since 1970
// and the fence; if done ("d"), the result. One that is free, or whose lease has ended,
// stays for its fence.
//
// The first number of an answer is one of the constants below.
const script = `
local what, token, keep = ARGV[1], ARGV[2], ARGV[3]
local record = redis.call('GET', KEYS[1])
local state, owner = '', ''
if record then state, owner = string.sub(record, 1, 1), string.sub(record, 2, 9) end
local held = state == 'h' or state == 't'
local mine = owner == token
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local ends = now + 1 -- a lease lasts no less than was asked for, though it is counted in whole ms
local function put(value) redis.call('SET', KEYS[1], value, 'PX', keep) end
local function lease(s, till, fence) put(s .. token .. string.format('%013.0f', till) .. string.format('%.0f', fence)) end
if what == 'reserve' then
	if state == 'd' then return {2, 0, string.sub(record, 10)} end
	local fence = 0
	if record then
		local till = tonumber(string.sub(record, 10, 22))
		fence = tonumber(string.sub(record, 23))
		if held and not mine and till > now then return {3, till - now} end
	end
	local s = 'h'
	if state == 't' or state == 'h' and not mine then s = 't' end
	fence = math.max(fence + 1, time[1] * 1000000 + time[2])
	lease(s, ends + ARGV[4], fence)
	return {s == 't' and 4 or 1, fence}
elseif what == 'extend' then
	if not (held and mine) then return {0} end
	lease(state, ends + ARGV[4], tonumber(string.sub(record, 23)))
	return {1}
elseif what == 'complete' then
	if record and not ((held or state == 'd') and mine) then return {0} end
	put('d' .. token .. ARGV[4])
	return {1}
elseif what == 'release' then
	if not ((held or state == 'f') and mine) then return {0} end
	lease('f', 0, tonumber(string.sub(record, 23)))
	return {1}
end
return redis.error_reply('ERR onceline: ' .. what)
`

// The answers of script.
const (
	refused   = 0 // the key is in other hands
	agreed    = 1
	seen      = 2
	held      = 3
	takenOver = 4 // agreed, after a holder that never said how it went
)

var scriptSHA = func() string {
	sum := sha1.Sum([]byte(script))
	return hex.EncodeToString(sum[:])
}()
