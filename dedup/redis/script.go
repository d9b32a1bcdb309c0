package redis

import (
	"crypto/sha1"
	"encoding/hex"
)

// script is every change that there is, of the records of its keys, each for itself.
// Arguments: what to do, how long records are kept in ms, the lease in ms, then the
// keys' tokens, and then, if they are completed, their results, or, if they are released,
// 1 for those of whose effect nobody can say whether it took place.
//
// A record is a state, the token of 8 bytes, and then: if it is held ("h", or "t" if it
// was taken over) or free ("f", or "u" if it is unknown what took place), the end of the
// lease in 13 digits of ms since 1970 and the fence; if done ("d"), the result. One that
// is free, or whose lease has ended, stays for its fence. None goes before its lease.
//
// It answers two values for each key, the first of which is one of the constants below.
// An error of one key is its alone.
const script = `
local KEYS, ARGV, sub, pcall = KEYS, ARGV, string.sub, redis.pcall
local what, keep, n = ARGV[1], string.format('%.0f', math.max(ARGV[2], ARGV[3] + 1)), #KEYS
local reserve, complete = what == 'reserve', what == 'complete'
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
-- A lease lasts no less than was asked for, though it is counted in whole ms.
local ends, first = string.format('%013.0f', now + 1 + ARGV[3]), time[1] * 1000000 + time[2]
local fresh = ends .. string.format('%.0f', first)
local answers = {}
for i = 1, n do
	local key, token = KEYS[i], ARGV[3 + i]
	-- Most keys that are reserved are new: that takes no more than this.
	local new = reserve and pcall('SET', key, 'h' .. token .. fresh, 'PX', keep, 'NX')
	local code, value, put = 0, 0, nil
	if new and new.ok then
		code, value = 1, first
	else
		local record = pcall('GET', key)
		local state, mine, till, fence = '', false, nil, nil
		if type(record) == 'string' then state, mine = sub(record, 1, 1), sub(record, 2, 9) == token end
		local held = state == 'h' or state == 't'
		local free = state == 'f' or state == 'u'
		if held or free then till, fence = tonumber(sub(record, 10, 22)), tonumber(sub(record, 23)) end
		if type(record) == 'table' then
			code, value = 5, record.err
		elseif record and state ~= 'd' and not (till and fence) then
			code, value = 5, 'ERR onceline: the record of the key is none of its own'
		elseif reserve then
			if state == 'd' then
				code, value = 2, sub(record, 10)
			elseif held and not mine and till > now then
				code, value = 3, till - now
			elseif new then
				code, value = 5, new.err
			else
				local s = 'h'
				if state == 't' or state == 'u' or state == 'h' and not mine then s = 't' end
				value = math.max((fence or 0) + 1, first)
				put, code = s .. token .. ends .. string.format('%.0f', value), s == 't' and 4 or 1
			end
		elseif complete then
			if not record or (held or state == 'd') and mine then put, code = 'd' .. token .. ARGV[3 + n + i], 1 end
		elseif what == 'extend' then
			if held and mine then put, code = state .. token .. ends .. sub(record, 23), 1 end
		elseif what == 'release' then
			local s = ARGV[3 + n + i] == '1' and 'u' or 'f'
			if (held or free) and mine then put, code = s .. token .. '0000000000000' .. sub(record, 23), 1 end
		else
			code, value = 5, 'ERR onceline: ' .. what
		end
	end
	if put then
		local done = pcall('SET', key, put, 'PX', keep)
		if done.err then code, value = 5, done.err end
	end
	answers[2 * i - 1], answers[2 * i] = code, value
end
return answers
`

// The answers of script.
const (
	refused   = 0 // the key is in other hands
	agreed    = 1 // and the fence, of a reservation
	seen      = 2 // and the result
	held      = 3 // and for how many ms more
	takenOver = 4 // agreed, after a holder that never said how it went
	troubled  = 5 // and what the server said
)

var scriptSHA = func() string {
	sum := sha1.Sum([]byte(script))
	return hex.EncodeToString(sum[:])
}()
