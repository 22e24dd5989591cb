-- The token is at least the server's time in µs. So tokens increase even if the server has lost the last token, unless
-- its clock was set back. Lua cannot represent every integer above 9007199254740991.
local last = call('GET', KEYS[2]) or '0'
local token = string.find(last, '^%d+$') and math.max(last + 1, time[1] * 1000000 + time[2], ARGV[5] + 0)
if not token or token > 9007199254740991 then
    return redis.error_reply('WRONGTYPE ' .. KEYS[2] .. ' is no fencing token above which there are others')
end
call('SET', KEYS[2], string.format('%.0f', token))
