-- Defines the number of the request, the first key, and `now`, the server time in ms since 1970.
local number, call, pcall, key = ARGV[#ARGV] + 0, redis.call, redis.pcall, KEYS[1]
local time = call('TIME')
local micros = time[2] + 0
local now = time[1] * 1000 + (micros - micros % 1000) / 1000
