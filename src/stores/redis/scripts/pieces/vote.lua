-- Only in a quorum: refuses the request unless this server is a master with the replication id ARGV[#ARGV-2].
if #ARGV % 2 == 1 then
    local replication = call('INFO', 'replication')
    if
        not string.find(replication, 'role:master', 1, true)
        or not string.find(replication, 'master_replid:' .. ARGV[#ARGV - 2], 1, true)
    then
        return {number, {6, now}}
    end
end
