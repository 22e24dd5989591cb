-- Renews many token locks at once.
--
-- KEYS[i]               a lock
-- ARGV[2i-1], ARGV[2i]  the token of KEYS[i] and its lease, ms
-- ARGV[#ARGV-1]         the server time after which the request is refused, ms since 1970
-- ARGV[#ARGV]           the number of the request, which precedes the reply: {number, …}
--
-- Returns {now, 0}             too late, nothing was done
--         {now, 1, i, what, …}  renewed, except for each listed KEYS[i]: what is 0 if the lock is free, else its holder
--
-- Keeps: only a key with the visitor's own token gets a new TTL.

-- include renewals.lua
for i = 1, #KEYS do
    local token = pcall('GET', KEYS[i])
    if token == ARGV[2 * i - 1] then
        call('PEXPIRE', KEYS[i], ARGV[2 * i])
    else
        local what = token and 'a key of another type' or 0
        if type(token) == 'string' then
            what = string.sub(token, 1, 64)
        elseif token and not string.find(token.err, 'WRONGTYPE', 1, true) then
            return token
        end
        note(i, what)
    end
end
return {number, result}
