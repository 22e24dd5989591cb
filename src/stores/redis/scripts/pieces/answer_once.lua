-- Stores the reply before the change. If there is nothing to change (`does` is false), returns the reply.
call('SET', KEYS[2], answer == 'range' and answer or string.format('%.0f', answer), 'PX', ARGV[4])
if not does then
    return {number, answer == 'range' and {4, now} or {1, now, answer}}
end
